// Waiter: something that comes after others, and how many of these it still waits for.
//
// One word decides, so that conditions may be met and fail on any threads: how many are unmet, whether one failed, and
// whether the waiter is still on its way to where it waits, or has left. It is told once, by whoever met the last
// condition or by the first failure, and not before it has arrived: who arrives is answered there and then instead.
#pragma once

#include <cstdint>

#include "base/sync.h"

namespace weir::causality {

enum class Answer : std::uint8_t { wait, go, fail };

class Waiter {
 public:
  // With one reference, its maker's.
  explicit Waiter(std::uint32_t conditions) : word_(conditions | kTravels) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // A condition is met, or never will be.
  void meet() {
    // Acquire-release: whoever goes on has seen all that was met.
    const std::uint32_t before = word_.fetch_sub(1, std::memory_order_acq_rel);
    if (before == 1) tell(Answer::go);  // the last one, of a waiter that is there and has not failed
  }
  void fail() {
    const std::uint32_t before = word_.fetch_or(kFailed, std::memory_order_acq_rel);
    if ((before & (kFailed | kTravels | kLeft)) == 0) tell(Answer::fail);
  }
  // Once, where it waits. `wait`: tell() follows.
  [[nodiscard]] Answer arrive() { return judge(word_.fetch_and(~kTravels, std::memory_order_acq_rel)); }
  // It waits no longer. True: it was not told, and never will be.
  bool leave() {
    const std::uint32_t before = word_.fetch_or(kLeft, std::memory_order_acq_rel);
    return (before & kTravels) != 0 || judge(before) == Answer::wait;
  }
  // Relaxed: who has left stays so.
  bool has_left() const { return (word_.load(std::memory_order_relaxed) & kLeft) != 0; }
  // So far.
  Answer look() const { return judge(word_.load(std::memory_order_acquire)); }

  void hold() { references_.fetch_add(1, std::memory_order_relaxed); }  // who has one may take another
  void release() {
    // Acquire-release: the last one sees what the others did.
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }

 protected:
  ~Waiter() = default;

 private:
  static constexpr std::uint32_t kFailed = 1u << 31, kTravels = 1u << 30, kLeft = 1u << 29;

  static Answer judge(std::uint32_t word) {
    if ((word & kFailed) != 0) return Answer::fail;
    return (word & ~(kTravels | kLeft)) == 0 ? Answer::go : Answer::wait;
  }
  // At most once; from any thread.
  virtual void tell(Answer answer) = 0;
  virtual void destroy() = 0;

  sync::Atomic<std::uint32_t> word_;
  sync::Atomic<std::uint32_t> references_{1};
};

}  // namespace weir::causality
