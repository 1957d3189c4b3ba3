#include "token/grant_pace.h"

namespace weir::token {

bool GrantPace::set_senders(std::uint64_t senders) {
  const bool was_measured = is_measured_;
  is_measured_ = rate_ == 0 && senders >= kFewestSenders;
  if (!is_measured_ || was_measured) return false;
  count_writes(Duration{});
  parts_ = most_writes_;
  return writes_ != 0;
}

bool GrantPace::judge_window() {
  count_writes(Duration{});
  static_cast<void>(divide());
  const std::uint64_t share = window_.bytes() / parts_;
  const std::uint64_t difference = share > told_share_ ? share - told_share_ : told_share_ - share;
  if (difference * kToldPart < told_share_) return false;
  told_share_ = share;
  return true;
}

void GrantPace::count_writes(Duration round_trip) {
  most_writes_ = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::bit_floor(room(round_trip) / kLeastShare), kFewestWrites, kMostWrites));
}

std::uint64_t GrantPace::tail(Duration round_trip) const {
  // Half, because the window is not known as well as a rate that was told.
  return is_measured_ ? window_.bytes_under_way() / parts_ / 2 : (room(round_trip) - kTrainBytes) / parts_;
}

}  // namespace weir::token
