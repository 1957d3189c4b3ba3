// What a call has to do with others: what it comes after (CallOptions::after), and whether others may come after it
// (CallOptions::tracked). Most calls have no ties and pay nothing for them.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <optional>

#include "base/time.h"
#include "causality/map.h"
#include "causality/waiter.h"
#include "pool/call_record.h"
#include "weir/config.h"
#include "weir/error.h"

namespace weir::engine {
class Engine;
}

namespace weir::pool {

class Gate;

// A call that waits for others. It outlives its record as long as one of these might still tell it something.
class Waiting final : public causality::Waiter {
 public:
  Waiting(std::shared_ptr<Gate> gate, std::uint32_t conditions);

  // The call has ended. On the worker, or on whatever thread refuses it.
  void end();
  // On the worker, once it was told: what it waited for may go on for long, and need not keep the gate.
  void forget_gate() { gate_.reset(); }

  CallRecord* record = nullptr;  // the worker's: from its arrival to its end
  Waiting* link = nullptr;       // at the gate

 private:
  ~Waiting() = default;
  void tell(causality::Answer answer) override;
  void destroy() override { delete this; }

  std::shared_ptr<Gate> gate_;  // unchanged until it was told, or has left
};

// At the end of OutgoingCall::inline_bytes, of calls with ties; so these have less room for a payload there.
struct Ties {
  static constexpr std::size_t kRoom = 16;
  static constexpr std::size_t kInlineBytes = CallRecord::kInlineBytes - kRoom;  // left for the payload

  Waiting* waiting = nullptr;
  causality::Token token = 0;

  static Ties& of(CallRecord& record) {
    return *std::launder(reinterpret_cast<Ties*>(record.inline_bytes + kInlineBytes));
  }
};
static_assert(sizeof(Ties) == Ties::kRoom && alignof(Ties) <= 8);

inline bool has_ties(const CallOptions& options) { return options.tracked || !options.after.empty(); }

// Before it is submitted; an error: it must not be, and has no ties.
std::optional<Error> tie(CallRecord& record, const std::shared_ptr<Gate>& gate, const CallOptions& options);

// ---- on the worker ----
void on_sent(transfer::OutgoingCall& call);  // EngineConfig::on_sent
// The engine has the record and holds it. Anything but `wait`: it does not have to.
causality::Answer arrive(CallRecord& record);
void go_on(CallRecord& record, causality::Answer answer, engine::Engine& engine, Instant now);
// What it waited for has come. Takes over one reference.
void go_on(Waiting* waiting, engine::Engine& engine, Instant now);

// The call ends; whoever comes after it is told. On the worker.
void untie(CallRecord& record, bool has_failed) noexcept;
// The same in two steps, for whoever refuses it with a lock held: the second one without.
Ties take_ties(CallRecord& record) noexcept;
void end(const Ties& ties, bool has_failed) noexcept;

// All tracked calls of the process: what is waited for may be another pool's.
causality::Map& tracked_calls();

}  // namespace weir::pool
