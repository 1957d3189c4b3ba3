#include "recovery/path_controller.h"

namespace weir::recovery {

void PathController::start_model(const AckedBatch& batch, Random& random) {
  model_ = std::make_unique<Bbr>(Bbr::Options{.mtu = window_.mtu(),
                                              .window = window_.window(),
                                              .round_trip = batch.smoothed_rtt,
                                              .began_at = batch.largest_sent_at,
                                              .in_flight = batch.in_flight_before},
                                 random);
}

}  // namespace weir::recovery
