#include "recovery/ecn_validator.h"

namespace weir::recovery {

void EcnValidator::on_lost(EcnMark mark) {
  if (state_ != State::testing || mark == EcnMark::none) return;
  if (++lost_ >= kTestPackets) state_ = State::failed;
}

std::uint64_t EcnValidator::on_ack(const AckView& ack, const LossReport& report) {
  // Counts of an acknowledgement that was overtaken by a newer one are older than what is known.
  if (state_ == State::failed || !report.largest_advanced) return 0;
  if (!ack.has_ecn) {
    if (report.acked_ect0 != 0) state_ = State::failed;
    return 0;
  }
  const bool decreased = ack.ecn.ect0 < known_.ect0 || ack.ecn.ce < known_.ce;
  const bool invented = ack.ecn.ect1 != 0;  // we never send that mark
  const std::uint64_t marked = ack.ecn.ect0 - known_.ect0 + (ack.ecn.ce - known_.ce);
  if (decreased || invented || marked < report.acked_ect0) {
    state_ = State::failed;
    return 0;
  }
  const std::uint64_t congested = ack.ecn.ce - known_.ce;
  known_ = ack.ecn;
  if (report.acked_ect0 != 0) state_ = State::capable;
  return state_ == State::capable ? congested : 0;
}

}  // namespace weir::recovery
