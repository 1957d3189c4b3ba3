// Inbox: what other threads have left for one post at its gate, as its worker takes it: new calls, wishes about calls
// and cancellations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "engine/engine.h"
#include "pool/call.h"
#include "pool/call_record.h"
#include "pool/gate.h"
#include "pool/ties.h"

namespace weir::pool {

// One per post, for its worker only.
class Inbox {
 public:
  explicit Inbox(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}

  // Gives new calls to `submit(record)`, and does what others asked for. True if there was anything. In a forked child
  // it may stop in the middle.
  template <class Submit>
  bool drain(engine::Engine& engine, Instant now, const Submit& submit) {
    if (gate_->have_ports_changed(ports_seen_)) [[unlikely]]
      gate_->copy_ports(ports_);
    bool is_busy = false;
    // Taken first: then the wishes of these calls, which are older, are granted below.
    detail::CancellableCall* const cancelled = gate_->take_cancelled();
    for (std::size_t priority = 0; priority < Port::kPriorities && !ports_.empty(); ++priority) {
      for (auto& port : ports_) {
        is_busy |= port->pop(priority, kDrainPerRing, [&](CallRecord* record) { admit(record, submit); }) != 0;
      }
    }
    take_wishes(engine, now, submit);
    if (cancelled != nullptr) [[unlikely]] {
      cancel(cancelled, engine, now);
      is_busy = true;
    }
    return is_busy;
  }

 private:
  static constexpr std::size_t kDrainPerRing = 256;  // submissions that one turn takes from one ring

  template <class Submit>
  static void admit(CallRecord* record, const Submit& submit) {
    sync::reads(record);
    if (record->is_dropped) [[unlikely]]
      return throw_away(record);
    submit(record);
  }

  template <class Submit>
  void take_wishes(engine::Engine& engine, Instant now, const Submit& submit) {
    for (CallRecord* record = gate_->take_wishes(); record != nullptr;) {
      // First: with the bits gone, the record may be queued here again.
      sync::reads(&record->link);
      CallRecord* next = record->link;
      // Before the bits go: who finds them gone finds the stage.
      const bool is_claimed = (record->wishes.load(std::memory_order_acquire) & CallRecord::kClaim) != 0 &&
                              record->stage.load(std::memory_order_relaxed) != detail::CallStage::done;
      if (is_claimed) {
        record->stage.store(detail::CallStage::claimed, std::memory_order_relaxed);
        gate_->tell_of_waiter();
      }
      const std::uint8_t wishes = record->wishes.exchange(0, std::memory_order_acq_rel);
      if (wishes & CallRecord::kSubmit) admit(record, submit);
      if (wishes & CallRecord::kDrop) {
        drop_on_worker(record, engine, now);
      } else if ((wishes & CallRecord::kClaim) && !is_claimed) {
        hand_over(record);
      }
      record = next;
    }
  }

  static void throw_away(CallRecord* record) noexcept;
  void cancel(detail::CancellableCall* newest, engine::Engine& engine, Instant now);

  const std::shared_ptr<Gate> gate_;
  std::vector<std::shared_ptr<Port>> ports_;
  std::uint32_t ports_seen_ = 0;
};

}  // namespace weir::pool
