// The part of worker::Doorbell that talks to the system, in terms of the explorer: see worker/doorbell.cc.
#include "tests/explore/runtime.h"
#include "worker/doorbell.h"

namespace weir::worker {

Doorbell::Doorbell() : read_end_(0), write_end_(0) {}
Doorbell::~Doorbell() = default;
void Doorbell::wake() noexcept { explore::wake(this, explore::Where::current()); }
void Doorbell::clear_descriptor() noexcept {}

}  // namespace weir::worker
