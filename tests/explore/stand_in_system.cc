// What worker::Doorbell, Poller and place.h ask of the system, in terms of the explorer: see worker/doorbell.cc,
// poller.cc and place.cc.
#include "tests/explore/stand_in_system.h"

#include <array>
#include <utility>

#include "tests/explore/runtime.h"
#include "worker/doorbell.h"
#include "worker/place.h"
#include "worker/poller.h"

namespace weir::explore {
namespace {

std::array<char, 16> descriptors;
std::uint64_t numbered_run = 0;
std::size_t next_descriptor = 0;

// As the system does: the lowest one that is free.
int open_descriptor() {
  if (std::exchange(numbered_run, run_number()) != run_number() || !is_running()) next_descriptor = 0;
  if (next_descriptor == descriptors.size()) fail("a scenario has too many doorbells");
  return static_cast<int>(next_descriptor++);
}

}  // namespace

const void* sleeping_place(int descriptor) { return &descriptors.at(static_cast<std::size_t>(descriptor)); }

}  // namespace weir::explore

namespace weir::worker {

using explore::sleeping_place;
using explore::Where;

Doorbell::Doorbell() : read_end_(explore::open_descriptor()), write_end_(read_end_) {}
Doorbell::~Doorbell() = default;
void Doorbell::wake() noexcept { explore::wake(sleeping_place(write_end_), Where::current()); }
void Doorbell::clear_descriptor() noexcept { explore::forget_wakes(sleeping_place(read_end_), Where::current()); }
void Doorbell::close_in_child() noexcept {}

Poller::Poller() = default;
Poller::~Poller() = default;
void Poller::close_in_child() noexcept {}
bool Poller::is_open() const { return true; }
void Poller::add(int descriptor, void* tag) {
  watched_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  tags_.push_back(tag);
}
void Poller::want(int, void*, Wanted) {}
void Poller::remove(int) {}

// There is nothing but the doorbell.
std::size_t Poller::wait(Duration at_most) {
  if (at_most == Duration::zero()) return 0;
  if (!explore::sleep(sleeping_place(watched_.front().fd), at_most != Duration::max(), Where::current())) return 0;
  ready_[0] = {.tag = tags_.front(), .error = false};
  return 1;
}

bool is_crowded() { return false; }
void name_this_thread(const char*) {}
Result<void> pin_this_thread(const WorkerPlace&) { return {}; }

}  // namespace weir::worker
