// ReturnBox: how an engine learns that memory of its large messages is free again. Whichever thread drops the last
// reference on a landing puts a note in; the engine takes the notes out in its turn.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/sync.h"
#include "buffer/landing.h"

namespace weir::engine {

// Shared by the engine and every landing that is out; deletes itself when the last of them has gone.
class ReturnBox final : public buffer::Returns {
 public:
  struct Item {
    std::uint64_t bytes = 0;
    std::uint64_t member = 0;
    std::uint64_t path_serial = 0;
    std::uint32_t path = 0;
    std::uint32_t purse = 0;
  };

  // ---- the engine's thread ----
  // Called by other threads when there is something to take and the engine wants to know (see watch()).
  void set_wake(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  // One more landing is out.
  ReturnBox* join() {
    holders_.fetch_add(1, std::memory_order_relaxed);
    return this;
  }
  // Acquire: pairs with on_returned().
  bool has_some() const { return has_some_.load(std::memory_order_acquire); }
  void take(std::vector<Item>& out) {
    std::lock_guard lock(mutex_);
    out.swap(items_);
    has_some_.store(false, std::memory_order_relaxed);
  }
  // The engine goes.
  void leave() {
    set_wake({});
    drop();
  }

  // ---- any thread ----
  void on_returned(const buffer::Landing& landing) noexcept override {
    if (landing.charged_bytes != 0) {
      std::lock_guard lock(mutex_);
      items_.push_back({landing.charged_bytes, landing.member, landing.path_serial, landing.path, landing.purse});
      // Release: the notes are in place before the engine looks for them.
      if (!has_some_.exchange(true, std::memory_order_release) && wake_) wake_();
    }
    drop();
  }

 private:
  ~ReturnBox() override = default;
  // Acquire and release: the last holder sees what all of them did.
  void drop() {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  sync::Atomic<std::size_t> holders_{1};
  sync::Atomic<bool> has_some_{false};
  sync::Mutex mutex_;
  std::vector<Item> items_;
  std::function<void()> wake_;
};

}  // namespace weir::engine
