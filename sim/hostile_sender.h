// HostileSender: a member like any other, with the secret or a certificate, which calls correctly, and between its
// calls says what no engine would: writes where it may not, messages that never come, tokens that are not its own,
// answers nobody asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "buffer/heap_memory.h"
#include "sim/entropy.h"
#include "sim/forger.h"
#include "sim/hostile_service.h"
#include "sim/workload.h"
#include "sim/world.h"

namespace weir::sim {

struct HostileShape {
  std::uint32_t senders = 0;  // the last of the hosts
  Duration interval{0};       // between two things that one of them says
  std::size_t largest_bytes = 0;
  bool hoards = false;  // they keep what they are given for as long as they can, and are never urgent
};

// One per hostile host, and the application on it. Lives longer than the host. Nobody judges its own calls; what it
// does to others is judged by HostileService and by those others' own checks.
class HostileSender final : public Application {
 public:
  HostileSender(World& world, const HostileShape& shape, unsigned index, Sabotage sabotage);
  ~HostileSender() override;

  void set_host(Host& host);
  void add_victim(Host& host) { victims_.push_back(&host); }
  void on_start(HostId host) override;
  void on_stop(HostId host) override;
  void stop() { is_stopped_ = true; }

  // How often it did what.
  struct Totals {
    std::uint64_t opened = 0, finished = 0, tokens_named = 0;
    std::uint64_t outside = 0, foreign = 0, stale = 0;  // writes that must change nothing
    std::uint64_t scribbles = 0, unasked = 0, cancelled = 0, broken = 0, silences = 0;
    std::uint64_t calls = 0, answers = 0;  // of its correct ones
    std::uint64_t replies = 0;             // of all openings, those of replies
    Totals& operator+=(const Totals& other);
  };
  const Totals& totals() const { return totals_; }

 private:
  // One that it opened by hand.
  struct Message {
    std::uint64_t serial = 0;  // of its path
    wire::TransferId id;
    wire::Side side = wire::Side::request;
    wire::CargoFrame cargo;
    buffer::Sealed* sealed = nullptr;  // null: adopted, or there is nothing to write
    std::vector<std::byte> text;       // adopted
    std::uint64_t next = 0;            // byte to write
  };
  struct Call;
  // Where it strikes now.
  struct Aim {
    Host* victim = nullptr;
    engine::Path* path = nullptr;
  };
  using Act = void (HostileSender::*)(const Aim&);
  struct Choice {
    Act act;
    std::uint32_t weight[4];  // by temper
  };
  static const Choice kChoices[];

  // ---- correct calls and answers ----
  void call();
  static void run_give(void* context, transfer::IncomingTransfer& request, Instant now);
  void give(transfer::IncomingTransfer& request);
  static void complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome);

  // ---- the rest ----
  void strike();
  std::optional<Aim> aim();
  void open(const Aim& aim);
  void open_with_region(const Aim& aim);
  void open_again(const Aim& aim);
  void open_half(const Aim& aim);
  void open_absurd(const Aim& aim);
  void hoard(const Aim& aim);
  void ask_small(const Aim& aim);
  void write_some(const Aim& aim);
  void write_all(const Aim& aim);
  void trickle(const Aim& aim);
  void scribble(const Aim& aim);
  void write_outside(const Aim& aim);
  void write_foreign(const Aim& aim);
  void write_stale(const Aim& aim);
  void ask_for_regions(const Aim& aim);
  void grant_and_revoke(const Aim& aim);
  void acknowledge_messages(const Aim& aim);
  void acknowledge_packets(const Aim& aim);
  void cancel(const Aim& aim);
  void fall_silent(const Aim& aim);
  void break_a_rule(const Aim& aim);

  std::vector<std::byte> marked(std::size_t bytes);
  std::uint64_t any_bytes();
  std::uint8_t any_priority() { return static_cast<std::uint8_t>(shape_.hoards ? 7 : random_.below(8)); }
  // Of a message that can be opened: a new request's, or a reply's that is owed.
  std::optional<wire::TransferId> new_id(const Aim& aim);
  wire::TransferId any_id(const Aim& aim);
  wire::Side any_side() { return static_cast<wire::Side>(random_.below(2)); }
  std::uint64_t any_region(const Aim& aim);
  // What the application seals itself nobody verifies, so that all that is written for it must be marked. What its own
  // engine writes for a large reply is not, and would go to the same transfer: so a reply is either's.
  static bool may_be_adopted(std::uint64_t generation) { return generation % 2 == 0; }
  enum class Kind : std::uint8_t { any, sealed, empty };
  std::optional<Message> make_message(const Aim& aim, Kind kind = Kind::any);
  // False: there is no credit for it.
  bool send_opening(const Aim& aim, const Message& message, std::uint8_t depth, std::size_t first_bytes = 0);
  // Keeps it if it could be sent.
  void open(const Aim& aim, Message message, std::uint8_t depth);
  Message* any_message(const Aim& aim);
  std::uint64_t region_of(const Aim& aim, const Message& message);
  void write(const Aim& aim, std::uint64_t region, std::uint64_t offset, std::uint32_t record_bytes, ByteSpan slice,
             const std::byte* tag = nullptr);
  // Writes its next bytes, up to a packet's worth; false: it is written.
  bool write_next(const Aim& aim, Message& message, std::uint64_t region, std::size_t most);
  void keep(Message message);
  void forget(Message& message);

  static constexpr std::size_t kMaxMessages = 48;
  static constexpr std::size_t kMaxRegions = 256;  // that it remembers

  World& world_;
  HostileShape shape_;
  unsigned index_;
  Sabotage sabotage_;
  Random random_;
  SeededEntropy keys_;
  unsigned temper_;
  buffer::HeapMemory memory_{std::uint64_t{1} << 32};
  Host* host_ = nullptr;
  std::optional<Forger> forger_;
  std::vector<Host*> victims_;
  std::vector<Message> messages_;
  std::vector<std::uint64_t> regions_;  // that it has seen, whosever they are
  std::vector<std::unique_ptr<Call>> calls_;
  bool strikes_ = false;  // from its first start on, whether its process is there or not
  bool is_stopped_ = false;
  Totals totals_;
};

}  // namespace weir::sim
