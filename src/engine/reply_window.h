// ReplyWindow: how many bytes of replies one engine may ask for at a time, from all peers in one network
// (docs/protocol.md, rules N-14 to N-16).
//
// A hundred peers that answer at once know nothing of each other. Only their caller sees all of their packets, and it
// decides when they answer: by sending the requests. The caller takes the replies for what is on the way, learns how
// large the replies of each method are, and models the link on which they come (recovery/bottleneck.h): packet numbers
// that are missing are losses, and acknowledgements, which come the same way, show the queue. While nothing shows a
// limit and the window has room nothing is limited. Otherwise requests wait in line.
//
// A request whose handler takes its time has no reply on the way. It leaves the window after a while and counts as
// answered: the window grows until slow handlers delay nobody.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "recovery/bottleneck.h"
#include "schedule/pacer.h"
#include "transfer/outgoing_call.h"

namespace weir::engine {

// One per SharedLink; single-threaded.
class ReplyWindow {
 public:
  using Stamp = recovery::Bottleneck::Stamp;
  static constexpr std::uint32_t kFirstReplyBytes = 4'096;  // expected of a method that was not called yet
  static constexpr std::uint64_t kLargestBurst = 64 * 1024;
  static constexpr std::uint64_t kBurstsPerSecond = 4'000;
  static constexpr Duration kShortestWait = std::chrono::milliseconds(50);  // for a reply, in the window
  static constexpr Duration kLongestWait = std::chrono::milliseconds(200);
  static constexpr int kWaitRtts = 8;
  // The stamps that are remembered last for the shortest wait.
  static constexpr Duration kShortestStamp = kShortestWait / recovery::Bottleneck::kStamps;

  explicit ReplyWindow(recovery::Bottleneck::Options options)
      : model_(with_stamps(options)), oldest_(options.first_stamp) {}

  // ---- asking ----
  bool is_free() const { return model_.is_searching() && model_.has_room(); }
  bool may_ask(Instant now) const { return model_.has_room() && pacer_.next_send(now) <= now; }
  // When a request may go by time alone.
  Instant next_ask(Instant now) const;
  // The call is sent.
  void add(transfer::OutgoingCall& call, Instant now);

  // ---- hearing ----
  // The call is over. `reply_bytes`: of its reply.
  void on_reply(const transfer::OutgoingCall& call, std::uint32_t reply_bytes);
  // It ended without one.
  void on_end(const transfer::OutgoingCall& call) { take_out(call); }
  // At the end of a datagram: what on_reply() and on_end() have noted.
  void settle(Instant now) {
    if ((arrived_ | left_) != 0) settle_noted(now);
  }
  // Packets between the last one and this one have not come; negative: so many have, after all.
  void on_missing(std::int64_t packets) { model_.on_missing(packets); }
  // A round trip on the link, measured with an acknowledgement.
  void on_rtt(const recovery::Bottleneck::Outcome& outcome, Instant now) { model_.on_outcome(outcome, now); }
  void on_nothing_to_ask() { model_.on_nothing_to_send(); }
  // Requests that have waited for long have no reply on the way.
  void forget_old(Instant now);

  const recovery::Bottleneck& model() const { return model_; }

 private:
  static constexpr std::size_t kStamps = recovery::Bottleneck::kStamps;
  static constexpr std::size_t kMethods = 64;  // methods that share a place share what is expected
  static constexpr std::uint32_t kUnit = 64;   // one more than the reply fills stands for its header and tag
  static constexpr std::uint32_t kMostUnits = 0xfffe;
  static constexpr std::uint32_t kAverage = 8;  // replies

  struct Expected {
    std::uint32_t bytes : 31 = kFirstReplyBytes;
    bool is_known : 1 = false;
  };

  static recovery::Bottleneck::Options with_stamps(recovery::Bottleneck::Options options) {
    options.shortest_stamp = kShortestStamp;
    return options;
  }
  Expected& expected_of(const transfer::OutgoingCall& call) { return expected_[call.method % kMethods]; }
  void take_out(const transfer::OutgoingCall& call);
  void forget_oldest();
  void settle_noted(Instant now);
  void pace();
  Duration longest_wait() const;

  recovery::Bottleneck model_;
  schedule::Pacer pacer_;
  Stamp oldest_;                                      // in the window
  Stamp newest_ = 0;                                  // of the replies noted
  std::uint64_t arrived_ = 0;                         // noted: bytes that came
  std::uint64_t left_ = 0;                            // noted: bytes that were expected and are not any more
  std::array<std::uint32_t, kStamps> outstanding_{};  // bytes by stamp
  std::array<Expected, kMethods> expected_{};
};

}  // namespace weir::engine
