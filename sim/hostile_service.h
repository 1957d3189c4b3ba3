// HostileService: what honest hosts serve to hostile senders and ask of them, and what it finds in their messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "engine/path.h"
#include "sim/checker.h"
#include "sim/host.h"
#include "sim/workload.h"
#include "sim/world.h"
#include "weir/method.h"

namespace weir::sim {

inline constexpr Method kTake = "sim.take";  // served by honest hosts
inline constexpr Method kGive = "sim.give";  // served by hostile ones

// Every byte of text that a hostile sender seals, and every one that it writes without sealing it, says whose it is.
inline constexpr unsigned kMaxHostileSenders = 4;
void mark(MutableByteSpan bytes, unsigned sender, Random& random);
bool is_marked(ByteSpan bytes, unsigned sender);

// One per run that has hostile senders. Lives longer than the hosts. It stands beside the honest hosts' own
// application, runs what hostile senders call, and calls them. What anybody is shown of a message is whole, of bytes
// that its sender wrote, and nobody writes into it afterwards.
class HostileService final : public Application {
 public:
  struct Options {
    Duration call_interval{0};    // between two calls of an honest host to a hostile one
    Duration longest_starving{};  // an honest sender that waits for memory is given some so soon; 0: nobody knows
    Limits limits;                // of honest hosts
    Sabotage sabotage{};
  };
  HostileService(World& world, Checker& checker, Application& application, const Options& options);
  ~HostileService() override;

  void add_honest(Host& host) { hosts_.push_back(&host); }
  void add_hostile(const Host& host) { senders_.push_back(&host); }
  void on_start(HostId host) override;
  void on_stop(HostId host) override;

  // No more calls.
  void stop() { is_stopped_ = true; }
  // Everything has come to an end.
  void check_end();
  // What each honest host holds of large messages, now: of each kind no more than its limits say, of each sender no
  // more than its share.
  void check_bounds();

  struct Totals {
    std::uint64_t taken = 0, large = 0;  // messages that ran; of these, large ones
    std::uint64_t unopened = 0;          // did not verify, so that nobody saw them
    std::uint64_t outlived = 0;          // looked at again after a while
    std::uint64_t calls = 0, replies = 0, unopened_replies = 0;
    Duration longest_starving{0};  // of an honest sender
  };
  const Totals& totals() const { return totals_; }

 private:
  struct Serving {
    HostileService* service;
    HostId host;
  };
  struct Kept {
    transfer::IncomingTransfer* transfer = nullptr;
    detail::Pin* pin = nullptr;
    ByteSpan message;
    std::uint64_t hash = 0;
  };
  struct Call;
  struct Site {
    std::vector<std::unique_ptr<Call>> calls;
    std::unique_ptr<Serving> serving;
    std::map<std::uint64_t, Kept> kept;
  };

  static void run_take(void* context, transfer::IncomingTransfer& request, Instant now);
  Host& host_of(HostId host) const;
  void on_take(HostId host, transfer::IncomingTransfer& request);
  // Whether the message is one that may be shown; false: it was refused.
  bool judge(HostId host, transfer::IncomingTransfer& request, ByteSpan& message);
  void answer(HostId host, transfer::IncomingTransfer& request);
  void answer_kept(HostId host, std::uint64_t key);
  void call(HostId host);
  static void complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome);
  void on_reply(const Call& call, const transfer::Outcome& outcome);
  void check_bounds(Host& host);
  void check_starving(const Host& host, const engine::Path& path);
  static void verify_ledger(Host& host);
  bool is_hostile(const Address& address) const;

  static constexpr std::uint32_t kMaxKept = 8;  // by one host
  static constexpr std::size_t kMaxOwedFrames = 8'192;
  static constexpr std::uint64_t kCloseLook = 64;  // one look in so many

  World& world_;
  Checker& checker_;
  Application& application_;
  Options options_;
  Random choices_;
  std::vector<Host*> hosts_;
  std::vector<const Host*> senders_;
  std::map<HostId, Site> sites_;
  std::map<std::pair<HostId, std::uint64_t>, Instant> starving_;  // by host and path: since when
  std::uint64_t next_key_ = 1;
  std::uint64_t looks_ = 0;
  bool is_stopped_ = false;
  Totals totals_;
};

}  // namespace weir::sim
