#include "token/grant_window.h"

namespace weir::token {
namespace {

std::uint64_t part_of(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bytes) * part / whole);
}
std::uint64_t part_of(std::uint64_t bytes, Duration part, Duration whole) {
  return part_of(bytes, static_cast<std::uint64_t>(part.count()), static_cast<std::uint64_t>(whole.count()));
}

}  // namespace

void GrantWindow::on_round_trip(Duration took, Duration shortest) {
  const auto follow = [](Duration& mean, Duration value) {
    mean += (std::clamp(value, kShortestRound, kLongestRound) - mean) / kRoundTripMemory;
  };
  follow(round_trip_, std::min(took, std::max<Duration>(kLatest, 2 * std::min(shortest, kLongestRound))));
  follow(shortest_, std::min(shortest, took));
}

std::uint64_t GrantWindow::bytes_under_way() const {
  return shortest_ < round_trip_ ? part_of(bytes_, shortest_, round_trip_) : bytes_;
}

// What comes in the shortest round trip, and one train.
std::uint64_t GrantWindow::fitting_bytes() const {
  return part_of(rate_, shortest_, std::chrono::seconds(1)) + options_.train_bytes;
}

// Nothing is in flight. What one sender filled without a sign may be too much when many begin at once.
void GrantWindow::begin_again(Instant now) {
  begin_round(now);
  if (is_searching_ && rate_ != 0) bytes_ = std::max(std::min(bytes_, fitting_bytes()), options_.smallest_bytes);
}

void GrantWindow::begin_round(Instant now) {
  ++round_number_;
  round_from_ = now;
  delivered_ = marked_ = 0;
  missing_ = 0;
  losers_ = 0;
}

bool GrantWindow::is_lossy() const {
  return losers_ >= kFewestLosers && missing_ > 0 &&
         static_cast<std::uint64_t>(missing_) * options_.packet_bytes * kSignPart > delivered_;
}

// Whether it was the window that let no more come, and no long queue.
bool GrantWindow::is_filled(Duration took) const {
  return 4 * delivered_ >= 3 * part_of(bytes_, took, round_trip_) && round_trip_ - shortest_ < kLongestQueue;
}

bool GrantWindow::end_round(Instant now) {
  const Duration took = now - round_from_;
  const std::uint64_t before = bytes_;
  rate_ = std::max(part_of(delivered_, std::chrono::seconds(1), took), rate_ - rate_ / kRateMemory);
  const std::uint64_t fitting = fitting_bytes();
  if (is_lossy()) {
    bytes_ = std::min(fitting, bytes_ - bytes_ / kLossPart);
    is_searching_ = false;
  } else if (marked_ * kSignPart > delivered_) {
    // Half of the marked part, but no less than fits: a train is longer than what switches begin to mark at.
    const std::uint64_t less = is_searching_ ? bytes_ : part_of(bytes_, std::min(marked_, delivered_), 2 * delivered_);
    bytes_ = std::min(bytes_, std::max(bytes_ - less, fitting));
    is_searching_ = false;
  } else if (bytes_ < fitting || is_filled(took)) {
    bytes_ += is_searching_ ? bytes_ / 2 : bytes_ / kSlowGrowPart;
  }
  bytes_ = std::clamp(bytes_, options_.smallest_bytes, kLargestBytes);
  begin_round(now);
  return bytes_ != before;
}

}  // namespace weir::token
