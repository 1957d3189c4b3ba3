// MemberTrial: one member takes all it can of a server, others want their share, and a newcomer wants to be served.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "sim/checker.h"
#include "sim/host.h"
#include "sim/world.h"
#include "weir/method.h"

namespace weir::sim {

// Host 0 serves. Then come honest hosts, each with a certificate of its own, the hostile ones, which have one together,
// and a newcomer.
struct MemberShape {
  std::uint32_t honest = 2;
  std::uint32_t hostile = 3;
  bool is_large = false;        // memory of large messages is scarce; otherwise credit
  std::size_t bytes = 0;        // of a request
  std::uint32_t window = 16;    // calls that each host keeps outstanding: always more than it is given room for
  Duration service{5'000'000};  // how long the server keeps a request of an honest host
  Duration holding{0};          // and one of the hostile hosts'
  Duration newcomer_after{0};   // from the start on
  Duration round_trip{0};       // of a request, with what others have in flight

  std::uint32_t hosts() const { return honest + hostile + 2; }
  bool is_hostile(HostId host) const { return host > honest && host <= honest + hostile; }
  HostId newcomer() const { return static_cast<HostId>(honest + hostile + 1); }
};

// One per run that has a MemberShape. Lives longer than the hosts; stands beside the hosts' own application.
//
// It counts what the server takes in, request by request, and what each path is promised; the engine's own books of
// members are not asked. Over every second, an honest member that wants more the whole time holds at least 1/(2(N+1))
// of the credit, where N honest members are there, and has at least that part of all requests that are taken in, and
// as many as that part of the room has space for. Nobody ever holds more than half of the room, nor of the paths. The
// newcomer's first call is answered within a few round trips, once it has shaken hands.
class MemberTrial final : public Application {
 public:
  MemberTrial(World& world, Checker& checker, Application& application, const MemberShape& shape);
  ~MemberTrial() override;

  void add_host(Host& host) { hosts_.push_back(&host); }
  void on_start(HostId host) override;
  void on_stop(HostId host) override;

  // No more calls; all that the server keeps is answered.
  void stop();
  void check_end();

 private:
  static constexpr Duration kBucket{100'000'000};
  static constexpr std::size_t kBucketsOfASecond = 10;
  static constexpr Duration kLook{1'000'000};
  static constexpr Duration kPing{5'000'000};
  static constexpr int kRoundTrips = 6;  // hello, first, blocked, request; twice the two halves of the last ones
  struct Call;
  struct Kept {
    transfer::IncomingTransfer* transfer = nullptr;
    detail::Pin* pin = nullptr;
    std::size_t member = 0;
    std::uint64_t bytes = 0;
  };

  struct Bucket {
    std::uint64_t taken = 0;  // bytes of requests that came
    std::uint64_t held = 0;   // bytes of credit, summed over all looks
    Bucket& operator+=(const Bucket& other) {
      taken += other.taken;
      held += other.held;
      return *this;
    }
  };

  static void run_keep(void* context, transfer::IncomingTransfer& request, Instant now);
  static void complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome);
  void keep(transfer::IncomingTransfer& request);
  void answer(std::uint64_t key);
  void begin(HostId host);
  void call(HostId host);
  void ping(HostId host);
  void on_answered(const Call& call, bool failed);
  void look();
  // Members are counted: hostile first, then honest ones, then the newcomer.
  std::size_t member_of(HostId host) const;
  std::uint64_t cost_of_request() const;
  std::uint64_t room() const;     // of the server, for all
  std::vector<Bucket>& bucket();  // of now
  void check_second(std::size_t first);

  World& world_;
  Checker& checker_;
  Application& application_;
  MemberShape shape_;
  Random choices_;
  std::vector<Host*> hosts_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::map<std::uint64_t, Kept> kept_;
  std::uint64_t next_key_ = 1;
  std::vector<std::vector<Bucket>> buckets_;  // by time and member
  std::vector<Instant> since_;                // when each member began
  std::vector<bool> was_answered_;
  Instant started_{}, stopped_{};
  bool is_stopped_ = false;
  bool is_told_of_room_ = false, is_told_of_paths_ = false;  // once is enough
};

}  // namespace weir::sim
