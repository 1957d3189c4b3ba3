#include "sim/reconnection.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

constexpr int kRoundTrips = 3;
constexpr int kQuicRoundTrips = 2;
constexpr Duration kProbe = 16ms;      // of a path that has no sample yet: rule A-8
constexpr Duration kQuicProbe = 76ms;  // of a handshake of QUIC that has none: 25 ms, four times 12.5 ms, and 1 ms
// Per round trip: datagrams that leave one after the other, and turns of workers and handshakers on both sides.
constexpr int kDatagramsPerRoundTrip = 12;
constexpr int kPollsPerRoundTrip = 12;

}  // namespace

Duration Reconnection::allowed() const {
  const LinkShape& link = world_.network.shape_of(kCaller);
  const int round_trips = kRoundTrips + (has_identity_ ? kQuicRoundTrips : 0);
  const auto on_wire = static_cast<std::int64_t>(kDatagramsPerRoundTrip * 2 * std::uint64_t{1'500} * 1'000'000'000 /
                                                 link.bytes_per_second);
  return (has_identity_ ? kQuicProbe : kProbe) +
         round_trips * (4 * link.latency + Duration{on_wire} + kPollsPerRoundTrip * kPollDelay);
}

Reconnection::Reconnection(World& world, Checker& checker, const std::vector<std::unique_ptr<Host>>& hosts,
                           bool has_identity)
    : world_(world), checker_(checker), hosts_(hosts), has_identity_(has_identity) {
  world_.network.add_delivery_tap([this](const Packet& packet) { on_delivered(packet); });
  checker_.set_on_run([this](HostId host, const CallRecord& record) { on_run(host, record); });
  checker_.set_on_success([this](const CallRecord& record) { on_success(record); });
}

void Reconnection::on_delivered(const Packet& packet) {
  const Host& callee = *hosts_[kCallee];
  if (callee.life() == life_ || world_.network.find(packet.destination) != kCallee) return;
  life_ = callee.life();
  reached_at_ = world_.now();
  ran_.clear();
}

void Reconnection::on_run(HostId host, const CallRecord& record) {
  if (host == kCallee) ran_.insert(record.instruction.id);
}

void Reconnection::on_success(const CallRecord& record) {
  if (!reached_at_ || !ran_.contains(record.instruction.id)) return;
  const Duration took = world_.now() - *reached_at_;
  const Duration allowed = this->allowed();
  world_.journal.note(world_.now(), "reconnected life after allowed",
                      {life_, static_cast<std::uint64_t>(took.count()), static_cast<std::uint64_t>(allowed.count())});
  if (took > allowed) {
    checker_.violation(
        fmt::format("life {} of the callee gave its first reply {} us after the first packet of its "
                    "caller had reached it; at most {} us are allowed",
                    life_, took.count() / 1'000, allowed.count() / 1'000));
  }
  reached_at_.reset();
  measured_ += life_ != 1;
}

void Reconnection::check_end() {
  if (measured_ == 0) checker_.violation("no reply of a restarted host was measured in a run that is about that");
}

}  // namespace weir::sim
