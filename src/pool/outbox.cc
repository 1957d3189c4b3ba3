#include "pool/outbox.h"

#include <utility>

namespace weir::pool {

void Outbox::put(CallRecord* record) {
  Lane* lane = record->waiter.lane;
  if (last_bundle_ == nullptr || last_bundle_->lane.get() != lane) [[unlikely]] {
    last_bundle_ = nullptr;
    for (Bundle& bundle : bundles_) {
      if (bundle.lane.get() == lane) last_bundle_ = &bundle;
    }
    // Ours from here on: the lane's thread may end as soon as it has the record.
    if (last_bundle_ == nullptr) last_bundle_ = &bundles_.emplace_back(Bundle{.lane = lane->shared_from_this()});
  }
  Bundle& bundle = *last_bundle_;
  sync::writes(&record->link);
  record->link = bundle.newest;
  bundle.newest = record;
  if (bundle.oldest == nullptr) bundle.oldest = record;
  has_bundles_ = true;
}

void Outbox::deliver_bundles() {
  has_bundles_ = false;
  last_bundle_ = nullptr;
  for (Bundle& bundle : bundles_) {
    if (bundle.newest == nullptr) continue;
    CallRecord* newest = std::exchange(bundle.newest, nullptr);
    Lane::deliver(bundle.lane, newest, std::exchange(bundle.oldest, nullptr));
  }
  std::erase_if(bundles_,
                [](const Bundle& bundle) { return bundle.lane->is_orphaned.load(std::memory_order_acquire); });
}

}  // namespace weir::pool
