// The application on all hosts: clients that call in every way there is, and handlers that do as they are told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "sim/checker.h"
#include "sim/host.h"
#include "sim/message.h"
#include "sim/sequels.h"
#include "sim/world.h"

namespace weir::sim {

struct WorkloadShape {
  std::vector<HostId> callers;
  std::vector<HostId> callees;
  std::uint32_t calls_per_caller = 100;
  std::uint32_t window = 8;        // outstanding at once, per caller
  Duration think_time{1'000'000};  // between a completion and the next call, at most
  Duration shortest_deadline{500'000'000};
  Duration longest_deadline{2'000'000'000};
  double cancelled = 0.03;
  double nested = 0.1;
  double later = 0.2;
  double error = 0.05;
  double empty = 0.03;
  double without_deadline = 0.05;
  std::uint32_t patient_every = 4;    // of so many calls with a deadline, one waits for its peer until then; 0: none
  Duration longest_delay{3'000'000};  // of a late answer
  Duration service_time{0};           // a slow server answers one request after the other, each taking so long
  std::size_t largest_bytes = 16 * 1024;
  // Not 0: all requests, and all replies, have these sizes and nothing else is varied.
  std::uint32_t exact_bytes = 0;
  std::uint32_t exact_reply_bytes = 0;
  double large = 0;  // share of requests, and of replies, that are larger than an inline message
  std::size_t largest_large_bytes = 8u << 20;
  std::size_t piece_bytes = 0;    // of payloads; not 0: what the receiver says that it has is freed
  SequelShape sequels;            // calls that come after others
  bool must_succeed = false;      // no call may fail for a reason of the network
  std::vector<HostId> urgent;     // make small calls of the most urgent priority; all others then make large ones
  std::vector<HostId> untrusted;  // no call from or to these may succeed
  // The certificate of this host ends and is not replaced: from then on its calls do not succeed.
  std::optional<HostId> lapsing;
  Instant lapses_at = Instant::never();
};

// Ways to break the rules on purpose, for tests of the checker.
enum class Sabotage : std::uint8_t {
  none,
  completes_twice,
  runs_twice,
  swaps_replies,
  forgets_an_answer,
  leaks_a_request,
  keeps_a_large_request,
  keeps_a_receive_buffer,
  keeps_a_timer,
  keeps_credit,
  keeps_regions,
  repeats_a_nonce,
  goes_on_early,
  // Of victims of hostile senders.
  lets_others_write,
  shows_old_memory,
  grants_too_much,
  // Of identities.
  forgets_ends,
  // Of a server.
  forgets_members,
  // Of callees whose callers' addresses change.
  moves_at_once,
  never_moves,
  // Of workers.
  share_a_name,
};

// One per run. Lives longer than the hosts.
class Workload final : public Application {
 public:
  Workload(World& world, Checker& checker, const WorkloadShape& shape, Sabotage sabotage);
  ~Workload() override;

  void add_host(Host& host) { hosts_.push_back(&host); }
  void on_start(HostId host) override;
  void on_stop(HostId host) override;

  // No new calls but nested ones from now on.
  void stop() { stopped_ = true; }
  // One call from every caller to every callee.
  void call_everybody(bool must_succeed);
  bool is_done() const { return (stopped_ || quota_used_up()) && checker_.all_ended(); }
  // Calls whose memory the engine wrote to after it had let go of them, and those that are waited for.
  void check_end();
  static void on_sent(transfer::OutgoingCall& call);  // EngineConfig::on_sent

 private:
  struct Serving;
  struct Call;
  // A request that a handler has and has not answered.
  struct Pending {
    transfer::IncomingTransfer* transfer = nullptr;
    engine::Engine* engine = nullptr;  // that it came to
    Instruction instruction;
    ByteSpan request;  // valid while `pin` is held
    detail::Pin* pin = nullptr;
    std::size_t bytes = 0;  // that it costs of the limit for requests
  };
  struct Wish {
    HostId callee = 0;
    std::uint8_t depth = 0;
    Instant deadline = Instant::never();  // of the caller's own request
    std::uint64_t parent = 0;             // pending request to answer afterwards; 0: none
    bool is_chain = false;                // another call follows
    bool is_patient = false;              // has time enough, and is not cancelled
    bool must_succeed = false;
  };
  struct Site {
    std::map<std::uint64_t, Pending> pending;
    std::vector<std::unique_ptr<Call>> calls;
    std::vector<std::unique_ptr<Serving>> serving;  // one for each engine
    std::vector<detail::Pin*> kept;                 // by sabotage
    std::uint32_t submitted = 0;
    Instant busy_until{};
  };

  static void run_echo(void* context, transfer::IncomingTransfer& request, Instant now);
  static void run_nothing(void* context, transfer::IncomingTransfer& request, Instant now);
  static void complete(transfer::OutgoingCall& call, const transfer::Outcome& outcome);

  bool quota_used_up() const;
  bool is_untrusted(HostId host) const;
  // Whether the caller's certificate may end before the call does.
  bool may_lapse(HostId host) const;
  void chain(HostId host);
  void submit(HostId host, const Wish& wish);
  Instruction choose(HostId host, const Wish& wish);
  std::uint32_t choose_large_bytes();
  bool is_large(HostId host, std::size_t bytes) const;
  buffer::Sealed* seal(HostId host, std::uint64_t id, ByteSpan body);
  void load(HostId host, engine::Engine& engine, transfer::OutgoingCall& outgoing, const Instruction& instruction);
  void prepare_cancel(HostId host, Call& call);
  bool has_lost_pieces(const CallRecord& record, Code code) const;
  void on_request(HostId host, engine::Engine& engine, transfer::IncomingTransfer& request);
  void on_complete(Call& call, const transfer::Outcome& outcome);
  // The parent may have gone, with its process.
  void answer_parent(HostId host, std::uint64_t parent, bool well);
  void answer(HostId host, std::uint64_t pending, bool well);
  void answer_later(HostId host, std::uint64_t pending, Duration delay);

  World& world_;
  Checker& checker_;
  WorkloadShape shape_;
  Sabotage sabotage_;
  Random choices_;
  std::vector<Host*> hosts_;
  Sequels sequels_;
  std::map<HostId, Site> sites_;
  std::uint64_t next_pending_ = 1;
  bool stopped_ = false;
  std::uint64_t submitted_ = 0;
};

}  // namespace weir::sim
