#include "base/fork_guard.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace weir {
namespace {

// Until something watches for forks, and where no page can be cleared by the kernel.
constinit std::atomic<std::uint32_t> plain_number{1};
constinit std::atomic<std::uint32_t> last_number{1};  // a child inherits it, and counts on
constinit std::atomic<bool> is_watching{false};

struct Inherited {
  const void* object;
  Inherited* next;
};
constinit std::atomic<Inherited*> inherited_objects{nullptr};

std::atomic<std::uint32_t>& number() {
  return *const_cast<std::atomic<std::uint32_t>*>(detail::process_number_at.load(std::memory_order_relaxed));
}

// Null: the kernel does not do that.
std::atomic<std::uint32_t>* map_number() {
#if defined(MADV_WIPEONFORK)
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, bytes, MADV_WIPEONFORK) == 0) {
    return ::new (page) std::atomic<std::uint32_t>(plain_number.load(std::memory_order_relaxed));
  }
  munmap(page, bytes);
#endif
  return nullptr;
}

}  // namespace

constinit std::atomic<const std::atomic<std::uint32_t>*> detail::process_number_at{&plain_number};

std::uint32_t detail::number_this_process() noexcept {
  std::uint32_t none = 0;
  const std::uint32_t mine = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  // Of two threads that come here, one decides.
  return number().compare_exchange_strong(none, mine, std::memory_order_relaxed) ? mine : none;
}

void ForkGuard::watch() noexcept {
  if (is_watching.load(std::memory_order_acquire)) [[likely]]
    return;
  const std::atomic<std::uint32_t>* expected = &plain_number;
  std::atomic<std::uint32_t>* const page = map_number();
  if (page == nullptr) {
    pthread_atfork(nullptr, nullptr, [] { plain_number.store(0, std::memory_order_relaxed); });
  } else if (!detail::process_number_at.compare_exchange_strong(expected, page, std::memory_order_acq_rel)) {
    munmap(page, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));  // another thread was first
  }
  is_watching.store(true, std::memory_order_release);
}

void keep_for_ever(const void* inherited) noexcept {
  auto* const entry = new (std::nothrow) Inherited{inherited, nullptr};
  if (entry == nullptr) return;
  entry->next = inherited_objects.load(std::memory_order_relaxed);
  while (!inherited_objects.compare_exchange_weak(entry->next, entry, std::memory_order_release,
                                                  std::memory_order_relaxed)) {
  }
}

}  // namespace weir
