// ReplyWindow: how many bytes of replies one engine may ask for at a time, from all peers in one network
// (docs/protocol.md, rules N-13 and N-14).
//
// A hundred peers that answer at once know nothing of each other. Only their caller sees all of their packets, and it
// decides when they answer: by sending the requests. The caller takes the replies for what is in flight, learns how
// large the replies of each method are, and models the link on which they come (recovery/bottleneck.h). While nothing
// is missing from what arrives, nothing is limited. Otherwise requests wait in line.
//
// A request whose reply takes its time in a handler has no reply on the way. It leaves the window after a while, so
// that slow handlers delay nobody.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random.h"
#include "base/time.h"
#include "recovery/bottleneck.h"
#include "schedule/pacer.h"
#include "transfer/outgoing_call.h"

namespace weir::engine {

// One per SharedLink; single-threaded.
class ReplyWindow {
 public:
  static constexpr std::uint32_t kFirstReplyBytes = 4'096;  // expected of a method that was not called yet
  static constexpr std::uint64_t kLargestBurst = 64 * 1024;
  static constexpr std::uint64_t kBurstsPerSecond = 4'000;
  static constexpr Duration kShortestWait = std::chrono::milliseconds(20);  // for a reply, in the window
  static constexpr Duration kLongestWait = std::chrono::milliseconds(200);
  static constexpr int kWaitRtts = 8;

  ReplyWindow(const recovery::Bottleneck::Options& options, Random& random) : model_(options, random) {
    expected_.fill(kFirstReplyBytes);
  }

  // ---- asking ----
  bool is_free() const { return model_.is_searching() && model_.has_room(); }
  bool may_ask(Instant now) const { return model_.has_room() && pacer_.next_send(now) <= now; }
  // When a request may go by time alone; never(): only replies make room.
  Instant next_ask(Instant now) const;

  // A packet with requests: one stamp for all of them.
  recovery::Bottleneck::Stamp begin(Instant now);
  // The call is sent under that stamp.
  void add(transfer::OutgoingCall& call, recovery::Bottleneck::Stamp stamp, Instant now) {
    const std::uint32_t units = std::min(expected_[slot_of(call.method)] / kUnit, kMostUnits) + 1;
    const std::uint32_t bytes = units * kUnit;
    call.reply_stamp = stamp;
    call.reply_units = static_cast<std::uint16_t>(units);
    outstanding_[stamp % kStamps] += bytes;
    model_.add_in_flight(bytes);
    pacer_.on_sent(bytes, now);
  }

  // ---- hearing ----
  // The call is over. `reply_bytes`: of its reply.
  void on_reply(const transfer::OutgoingCall& call, std::uint32_t reply_bytes) {
    std::uint32_t& expected = expected_[slot_of(call.method)];
    expected = reply_bytes >= expected ? reply_bytes : expected - (expected - reply_bytes + 1) / 2;
    if (static_cast<std::int32_t>(call.reply_stamp - newest_) > 0) newest_ = call.reply_stamp;
    arrived_ += reply_bytes + kUnit;
    if (take_out(call)) left_ += bytes_of(call);
  }
  // It ended without one.
  void on_end(const transfer::OutgoingCall& call) {
    if (take_out(call)) left_ += bytes_of(call);
  }
  // At the end of a datagram: what on_reply() and on_end() have noted.
  void settle(Instant now) {
    if ((arrived_ | left_) != 0) settle_noted(now);
  }
  // Packets between the last one and this one have not come; negative: one of them has, after all.
  void on_missing(std::int64_t packets, std::uint32_t packet_bytes, Instant now);
  void on_nothing_to_ask() { model_.on_nothing_to_send(); }
  // Requests that have waited for long have no reply on the way.
  void forget_old(Instant now);

  const recovery::Bottleneck& model() const { return model_; }

 private:
  static constexpr std::size_t kStamps = recovery::Bottleneck::kStamps;
  static constexpr std::size_t kSizes = 256;  // methods that share a slot share an estimate

  static constexpr std::uint32_t kUnit = 64;  // one more than the reply fills stands for its header and tag
  static constexpr std::uint32_t kMostUnits = 0xfffe;

  static std::uint64_t bytes_of(const transfer::OutgoingCall& call) { return std::uint64_t{call.reply_units} * kUnit; }
  static std::size_t slot_of(std::uint64_t method) { return method % kSizes; }
  // False if it has left the window before.
  bool take_out(const transfer::OutgoingCall& call) {
    if (static_cast<std::int32_t>(call.reply_stamp - oldest_) < 0) return false;
    std::uint64_t& outstanding = outstanding_[call.reply_stamp % kStamps];
    outstanding -= std::min<std::uint64_t>(outstanding, bytes_of(call));
    return true;
  }
  void forget(recovery::Bottleneck::Stamp stamp);
  void settle_noted(Instant now);
  void pace();
  Duration longest_wait() const;

  recovery::Bottleneck model_;
  schedule::Pacer pacer_;
  recovery::Bottleneck::Stamp oldest_ = 1;            // in the window
  recovery::Bottleneck::Stamp newest_ = 0;            // of the replies noted
  std::uint64_t arrived_ = 0;                         // noted: bytes that came
  std::uint64_t left_ = 0;                            // noted: bytes that were expected and are not any more
  std::array<std::uint64_t, kStamps> outstanding_{};  // bytes by stamp
  std::array<std::uint32_t, kSizes> expected_{};      // bytes of a reply, by method
};

}  // namespace weir::engine
