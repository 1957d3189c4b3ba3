// A waiter that remembers what it was told.
#pragma once

#include <atomic>

#include "causality/waiter.h"

namespace weir::causality::testing {

// Lives on the test's stack or heap: its references are not counted but checked.
class Listener final : public Waiter {
 public:
  explicit Listener(std::uint32_t conditions) : Waiter(conditions) { static_cast<void>(arrive()); }

  // It has left untold; counts as told, for who looks at both.
  void leave_told() { ++goes_; }
  int goes() const { return goes_.load(); }
  int fails() const { return fails_.load(); }
  bool is_forgotten() const { return destroyed_.load() == 1; }  // everybody let go of it, its maker too

 private:
  void tell(Answer answer) override { ++(answer == Answer::go ? goes_ : fails_); }
  void destroy() override { ++destroyed_; }

  std::atomic<int> goes_{0}, fails_{0}, destroyed_{0};
};

}  // namespace weir::causality::testing
