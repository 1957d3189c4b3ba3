// The congestion controller of a path: a window that follows acknowledgements (window_controller.h), and for a path
// that has filled a part of it, and has its link to itself, a model of the link (bbr.h; docs/protocol.md, rule N-17).
//
// A model takes two kilobytes and some hundred instructions per acknowledgement. Most paths never fill a window, and
// need none.
#pragma once

#include <cstdint>
#include <memory>

#include "base/random.h"
#include "base/time.h"
#include "recovery/bbr.h"
#include "recovery/congestion.h"
#include "recovery/window_controller.h"

namespace weir::recovery {

// One per path; single-threaded.
class PathController {
 public:
  // A path that has had so much in flight may have a model.
  static constexpr std::uint64_t kModelledBytes = 16 * 1024;

  bool has_model() const { return model_ != nullptr; }
  const Bbr* model() const { return model_.get(); }

  // Before the acknowledgement of `largest_sent_at` is told. The model goes on from the window as it is.
  void start_model(const AckedBatch& batch, Random& random);
  void stop_model() { model_.reset(); }

  void on_sent(std::uint64_t bytes, std::uint64_t in_flight, Instant now) {
    if (model_ != nullptr) [[unlikely]] {
      model_->on_sent(bytes, in_flight, now);
    } else {
      window_.on_sent(bytes, in_flight, now);
    }
  }
  void on_acked(const AckedBatch& batch, Instant now) { active().on_acked(batch, now); }
  void on_lost(const LostBatch& batch, Instant now) { active().on_lost(batch, now); }
  void on_ecn_ce(std::uint64_t count, Instant largest_sent_at, Instant now) {
    active().on_ecn_ce(count, largest_sent_at, now);
  }
  void on_persistent_congestion(Instant now) { active().on_persistent_congestion(now); }
  void on_spurious_loss(std::uint32_t packets, Instant now) { active().on_spurious_loss(packets, now); }
  void on_app_limited(std::uint64_t in_flight) { active().on_app_limited(in_flight); }
  void set_mtu(std::uint32_t mtu) {
    window_.set_mtu(mtu);
    if (model_ != nullptr) model_->set_mtu(mtu);
  }

  std::uint64_t window() const { return model_ != nullptr ? model_->window() : window_.window(); }
  std::uint64_t pacing_rate() const { return active().pacing_rate(); }
  bool may_send(std::uint64_t in_flight) const { return in_flight < window(); }

 private:
  CongestionController& active() {
    if (model_ != nullptr) return *model_;
    return window_;
  }
  const CongestionController& active() const { return const_cast<PathController*>(this)->active(); }

  WindowController window_;
  std::unique_ptr<Bbr> model_;
};

}  // namespace weir::recovery
