// Judges a run: what must hold for every call, whatever the network did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/host.h"
#include "sim/message.h"
#include "sim/world.h"
#include "transfer/outgoing_call.h"

namespace weir::sim {

// A call from its submission on, and what became of it.
struct CallRecord {
  Instruction instruction;
  HostId caller = 0;
  std::uint32_t caller_life = 0;
  HostId callee = 0;
  Instant submitted{};
  Instant latest_end{};  // when it must have ended
  bool must_succeed = false;
  bool may_be_freed = false;     // some of it while the rest is on its way
  bool must_be_refused = false;  // one of the two does not believe the other
  bool is_patient = false;       // wait_for_ready
  bool cancel_asked = false;
  bool ended = false;
  bool abandoned = false;  // its caller crashed
  Instant gone_at{};       // when it ended or was abandoned
  bool failed = false;
  bool may_have_run = false;
  Code code{};
  std::uint32_t runs = 0;
};

inline constexpr std::uint8_t kUrgentPriority = 0;
inline constexpr std::uint8_t kBulkPriority = 6;

struct Totals {
  std::uint64_t calls = 0, ok = 0, abandoned = 0, handlers_run = 0;
  std::map<Code, std::uint64_t> failed;

  std::uint64_t all_failed() const;
};

// One per run.
class Checker {
 public:
  static constexpr std::size_t kMaxViolations = 10;  // a broken run tells the same story a thousand times

  Checker(World& world, std::string_view scenario) : world_(world), scenario_(scenario) {}

  // Somebody on the wire leads handshakes astray. One secret for all proves that a callee is one of us, not which one.
  void expect_misrouting() { misrouting_expected_ = true; }

  // Each host has so many: limits are those of one.
  void expect_workers(std::uint32_t count) { workers_ = count; }

  // Told of every call that got its reply.
  void set_on_success(std::function<void(const CallRecord&)> told) { on_success_ = std::move(told); }
  // Told of every request that a handler is given.
  void set_on_run(std::function<void(HostId, const CallRecord&)> told) { on_run_ = std::move(told); }

  // Numbers the call.
  std::uint64_t add(const CallRecord& record);
  const CallRecord& record(std::uint64_t id) const { return records_[id]; }
  void on_cancel(std::uint64_t id) { records_[id].cancel_asked = true; }
  // It may fail after all.
  void excuse(std::uint64_t id) { records_[id].must_succeed = false; }
  void on_start(HostId host);
  // Judges the request that a handler was given, of which `message` is header and body; null if it is nobody's.
  const CallRecord* on_run(HostId host, const engine::EngineConfig& config, const transfer::IncomingTransfer& request,
                           ByteSpan message, std::size_t header_bytes);
  void on_answered(HostId host, std::uint64_t id, std::size_t bytes);
  void on_stop(HostId host);
  void on_complete(std::uint64_t id, const transfer::Outcome& outcome, Duration slack);
  void on_abandoned(std::uint64_t id);

  // Calls with an empty request carry no id; they are counted.
  void on_nothing_run();
  // Looks for words of the application in a datagram.
  void on_datagram(const Packet& packet);

  void violation(const std::string& sentence);
  bool all_ended() const { return open_ == 0; }
  // The run is over and the network has long been calm.
  void check_end();
  void check_nothing_left(HostId host, const engine::Census& census, std::size_t buffers);
  // Memory of large messages: no more than is accounted for, and that is no more than the limits say.
  void check_memory(Host& host);
  void check_no_memory_left(const Host& host);
  void check_success(double least);
  // Urgent calls took so many times less time than bulk ones, on average, and bulk ones went on all the while.
  void check_priorities(double least_advantage);
  // What a host's handshakes have left behind.
  void check_nothing_left(HostId host, const Handshaker& handshaker, std::uint32_t max_credentials);

  const Totals& totals() const { return totals_; }
  const std::vector<std::string>& violations() const { return violations_; }
  static std::string describe(const CallRecord& record);

 private:
  using Caller = std::pair<HostId, std::uint32_t>;  // and its life
  struct Unanswered {
    std::size_t bytes = 0;
    std::map<Caller, std::size_t> by_caller;
  };

  void judge_reply(const CallRecord& record, const transfer::Outcome& outcome);
  void judge_patience(const CallRecord& record, const transfer::Outcome& outcome);
  void check_bounds(HostId host, const engine::EngineConfig& config, const CallRecord& record, std::size_t bytes);

  World& world_;
  std::string_view scenario_;
  std::deque<CallRecord> records_;  // references stay valid as calls are added
  std::map<HostId, Instant> started_;
  std::map<HostId, Unanswered> unanswered_;
  std::size_t open_ = 0;
  bool misrouting_expected_ = false;
  std::size_t workers_ = 1;
  std::function<void(const CallRecord&)> on_success_;
  std::function<void(HostId, const CallRecord&)> on_run_;
  std::uint64_t nothing_calls_ = 0, nothing_runs_ = 0, nothing_ok_ = 0;
  Totals totals_;
  std::vector<std::string> violations_;
};

}  // namespace weir::sim
