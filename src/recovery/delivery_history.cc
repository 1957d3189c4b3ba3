#include "recovery/delivery_history.h"

namespace weir::recovery {

void DeliveryHistory::push(Mark mark) {
  mark.delivered = delivered_;
  mark.lost = lost_;
  mark.is_app_limited = is_app_limited();
  marks_[count_++ % kMarks] = mark;
}

std::uint64_t DeliveryHistory::find(Instant sent_at, DeliverySample& sample) const {
  for (std::uint64_t at = count_; at != oldest(); --at) {
    const Mark& mark = marks_[(at - 1) % kMarks];
    if (mark.at > sent_at) continue;
    sample.is_known = true;
    sample.is_app_limited = mark.is_app_limited;
    sample.delivered = delivered_ - mark.delivered;
    sample.lost = lost_ - mark.lost;
    sample.delivered_before = mark.delivered;
    sample.in_flight = mark.in_flight;
    return at - 1;
  }
  return kNoMark;
}

DeliverySample DeliveryHistory::on_acked(std::uint64_t bytes, Instant sent_at, Instant now) {
  delivered_ += bytes;
  DeliverySample sample;
  std::uint64_t at = find(sent_at, sample);
  if (at != kNoMark) {
    while (at != oldest() && now - marks_[at % kMarks].at < least_time_ && !marks_[at % kMarks].begins_anew) --at;
    const Mark& mark = marks_[at % kMarks];
    sample.is_app_limited |= mark.is_app_limited;
    sample.rate = bytes_per_s(delivered_ - mark.delivered, std::max(now - mark.at, sent_at - mark.sent_at));
  }
  acked_sent_at_ = std::max(acked_sent_at_, sent_at);
  return sample;
}

DeliverySample DeliveryHistory::on_lost(std::uint64_t bytes, Instant sent_at) {
  lost_ += bytes;
  DeliverySample sample;
  (void)find(sent_at, sample);
  return sample;
}

}  // namespace weir::recovery
