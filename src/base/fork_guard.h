// ForkGuard: whether this process is a forked child of the one in which an object was made.
//
// One mechanism for everything that must not outlive a fork: keys, sockets, loops, buffers, handles. The number of the
// process lies in a page that the kernel clears in every child that does not share memory with its parent
// (MADV_WIPEONFORK), so that children made by clone() or _Fork() are noticed, too. A child of vfork() or posix_spawn()
// shares its parent's memory until it calls exec(), and is no other process here. Where the kernel has no such pages, a
// handler of pthread_atfork() clears the number.
//
// What a child inherits is left as it is, and never destroyed: a thread of the parent, which the child does not have,
// may have held any lock and been in the middle of any change.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "weir/process.h"

namespace weir {

inline constexpr char kForked[] =
    "this process is a fork of the one that opened the pool: only that one can use it, and this one opens a pool of "
    "its own";

// One per object, as large as a number. Any thread. A look costs two loads.
class ForkGuard {
 public:
  ForkGuard() noexcept { watch(); }
  bool is_in_child() const noexcept { return !detail::is_process(process_); }

 private:
  static void watch() noexcept;  // notices forks from here on
  std::uint32_t process_ = detail::process_number();
};

// Something of the parent that a child has no use for. It stays reachable, so that no leak is reported.
void keep_for_ever(const void* inherited) noexcept;

// Shared objects that a forked child does not destroy.
template <class T>
struct DeleteUnlessForked {
  ForkGuard fork_guard;
  void operator()(T* object) const {
    if (fork_guard.is_in_child()) return keep_for_ever(object);
    delete object;
  }
};

template <class T, class... Arguments>
std::shared_ptr<T> make_shared_unless_forked(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), DeleteUnlessForked<T>{});
}

// One T for each process, made on first use and never destroyed. A forked child makes its own. Any thread.
template <class T>
class OnePerProcess {
 public:
  T& get() {
    Entry* entry = entry_.load(std::memory_order_acquire);
    if (entry != nullptr && !entry->fork_guard.is_in_child()) [[likely]]
      return entry->value;
    return make(entry);
  }

 private:
  struct Entry {
    ForkGuard fork_guard;
    Entry* inherited = nullptr;
    T value;
  };

  T& make(Entry* old) {
    auto* const made = new Entry;
    made->inherited = old;
    // Release: whoever finds it finds it complete. Acquire on failure: as in get().
    if (entry_.compare_exchange_strong(old, made, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return made->value;
    }
    delete made;
    return old->value;
  }

  std::atomic<Entry*> entry_{nullptr};
};

}  // namespace weir
