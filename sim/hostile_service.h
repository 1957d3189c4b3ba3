// HostileService: what honest hosts serve to hostile senders, and what it finds in their messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "sim/checker.h"
#include "sim/host.h"
#include "sim/workload.h"
#include "sim/world.h"
#include "weir/method.h"

namespace weir::sim {

inline constexpr Method kTake = "sim.take";

// Every byte of text that a hostile sender seals, and every one that it writes without sealing it, says whose it is.
inline constexpr unsigned kMaxHostileSenders = 4;
std::byte mark_of(unsigned sender, Random& random);
bool is_marked(ByteSpan bytes, unsigned sender);

// One per run that has hostile senders. Lives longer than the hosts. It stands beside the honest hosts' own
// application and runs what hostile senders call: a handler is given a message whole, of bytes that its sender wrote,
// and nobody writes into it afterwards.
class HostileService final : public Application {
 public:
  HostileService(World& world, Checker& checker, Application& application, Sabotage sabotage);
  ~HostileService() override;

  void add_honest(Host& host) { hosts_.push_back(&host); }
  void add_hostile(const Host& host) { senders_.push_back(&host); }
  void on_start(HostId host) override;
  void on_stop(HostId host) override;

  // What each honest host holds of large messages, now: of each kind no more than its limits say, of each sender no
  // more than its share.
  void check_bounds();

  struct Totals {
    std::uint64_t taken = 0, large = 0;  // messages that ran; of these, large ones
    std::uint64_t unopened = 0;          // did not verify, so that nobody saw them
    std::uint64_t outlived = 0;          // looked at again after a while
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
  struct Site {
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
  void check_bounds(Host& host);

  static constexpr std::uint32_t kMaxKept = 8;  // by one host
  static constexpr std::size_t kMaxOwedFrames = 8'192;

  World& world_;
  Checker& checker_;
  Application& application_;
  Sabotage sabotage_;
  Random choices_;
  std::vector<Host*> hosts_;
  std::vector<const Host*> senders_;
  std::map<HostId, Site> sites_;
  std::uint64_t next_key_ = 1;
  Totals totals_;
};

}  // namespace weir::sim
