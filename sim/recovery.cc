#include "sim/recovery.h"

#include <fmt/format.h>

#include <algorithm>

namespace weir::sim {

Recovery::Recovery(World& world, Checker& checker, const std::vector<std::unique_ptr<Host>>& hosts)
    : world_(world), checker_(checker), hosts_(hosts) {
  world_.network.add_delivery_tap([this](const Packet& packet) { on_delivered(packet); });
  checker_.set_on_run([this](HostId host, const CallRecord&) { on_run(host); });
  checker_.set_on_success([this](const CallRecord& record) { on_success(record); });
}

void Recovery::on_delivered(const Packet& packet) {
  const Host& callee = *hosts_[kCallee];
  if (callee.life() == life_ || first_reached_at_ || world_.network.find(packet.destination) != kCallee) return;
  first_reached_at_ = world_.now();
}

void Recovery::on_run(HostId host) {
  if (host != kCallee || !first_reached_at_) return;
  const Duration took = world_.now() - *first_reached_at_;
  const Duration allowed = 2 * round_trip_ + *handshake_ + kPolls * kPollDelay;
  world_.journal.note(world_.now(), "recovered after allowed",
                      {static_cast<std::uint64_t>(took.count()), static_cast<std::uint64_t>(allowed.count())});
  if (took > allowed) {
    checker_.violation(fmt::format(
        "the restarted host ran its first request {} us after the first packet had reached "
        "it; two round trips of {} us and a handshake of {} us make {} us",
        took.count() / 1'000, round_trip_.count() / 1'000, handshake_->count() / 1'000, allowed.count() / 1'000));
  }
  first_reached_at_.reset();
  life_ = hosts_[kCallee]->life();
  ++measured_;
}

void Recovery::on_success(const CallRecord& record) {
  round_trip_ = std::min(round_trip_, world_.now() - record.submitted);
  if (!handshake_) handshake_ = hosts_[kCaller]->handshaker()->stats().first_handshake;
}

void Recovery::check_end() {
  if (measured_ == 0) checker_.violation("nobody restarted in a run that is about restarts");
}

}  // namespace weir::sim
