#include "sim/worker.h"

#include <utility>

namespace weir::sim {

SimWorker::SimWorker(World& world, const Options& options, crypto::Entropy& entropy, std::function<void()> wake)
    : index_(options.index),
      handshaker_(options.handshaker),
      forwarded_(options.siblings != nullptr ? &options.siblings->ring(options.config.worker) : nullptr),
      link_(world.network, world.queue, options.host, options.local, options.link, std::move(wake),
            options.port == nullptr),
      engine_(options.config, entropy, options.subscriber, options.seed, world.now()),
      seat_(engine_, link_, burst_, this) {
  if (options.port != nullptr) options.port->add(link_);
  if (handshaker_ != nullptr) handshaker_->add_engine(index_, engine_);
}

bool SimWorker::drain(Instant now) {
  bool is_busy = handshaker_ != nullptr && handshaker_->drain(index_, now);
  if (forwarded_ == nullptr) return is_busy;
  forwarded_->give_back();
  for (worker::ForwardRing::Datagram datagram; forwarded_->take(datagram); is_busy = true) {
    engine_.on_forwarded(datagram.bytes, datagram.from, datagram.ecn, now);
  }
  return is_busy;
}

void SimWorker::flush(Instant now) {
  if (handshaker_ != nullptr) handshaker_->flush(index_, now);
}

}  // namespace weir::sim
