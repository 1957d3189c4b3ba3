#include "buffer/page_source.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "buffer/numa.h"

namespace weir::buffer {
namespace {

constexpr int kProtection = PROT_READ | PROT_WRITE;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;

// Null: there are no huge pages left, or none at all.
void* map_huge([[maybe_unused]] std::size_t bytes) {
#ifdef MAP_HUGETLB
  constexpr int kTwoMebibytes = 21 << 26;  // the page size's logarithm where MAP_HUGE_SHIFT wants it
  void* const data = ::mmap(nullptr, bytes, kProtection, kFlags | MAP_HUGETLB | kTwoMebibytes, -1, 0);
  if (data != MAP_FAILED) return data;
#endif
  return nullptr;
}

// Ordinary pages, but aligned so that the kernel can make huge ones of them by itself.
void* map_ordinary(std::size_t bytes) {
  constexpr std::size_t kUnit = PageSource::kHugePageBytes;
  void* const data = ::mmap(nullptr, bytes + kUnit, kProtection, kFlags, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(data);
  const std::size_t before = (kUnit - reinterpret_cast<std::uintptr_t>(begin) % kUnit) % kUnit;
  if (before != 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, kUnit - before);
#ifdef MADV_HUGEPAGE
  ::madvise(begin + before, bytes, MADV_HUGEPAGE);  // a wish
#endif
  return begin + before;
}

void touch_all(std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += RangeAllocator::kUnit) data[at] = std::byte{0};
}

}  // namespace

PageSource::PageSource(Options options) : options_(std::move(options)), nodes_(numa_nodes()) {}

int PageSource::node_for(int wish) const {
  return nodes_.size() > 1 && std::find(nodes_.begin(), nodes_.end(), wish) != nodes_.end() ? wish : -1;
}

Result<Extent> PageSource::map(std::size_t bytes, int numa_node) {
  void* data = options_.huge ? map_huge(bytes) : nullptr;
  if (data == nullptr) {
    data = map_ordinary(bytes);
    if (data == nullptr) {
      return std::unexpected(Error(Code::system, "no memory can be mapped: " + std::string(std::strerror(errno))));
    }
    if (options_.huge) degraded_ = true;
  }
  // Where that is not allowed the pages come from the node that touches them first: as near as it gets.
  if (numa_node != -1) (void)prefer_node(data, bytes, numa_node);
  auto* const first = static_cast<std::byte*>(data);
  if (std::exchange(options_.touch, false)) touch_all(first, bytes);
  return Extent{.data = first, .bytes = bytes, .numa_node = numa_node};
}

void PageSource::tell() {
  // Acquire-release: one thread tells, once.
  if (!degraded_.load(std::memory_order_relaxed) || was_told_.exchange(true, std::memory_order_acq_rel)) return;
  if (options_.on_degraded) {
    options_.on_degraded(
        "too few huge pages are reserved for buffers; ordinary ones cost more to reach (sysctl vm.nr_hugepages)");
  }
}

void PageSource::unmap(const Extent& extent) noexcept { ::munmap(extent.data, extent.bytes); }

}  // namespace weir::buffer
