#include "buffer/numa.h"

#include <charconv>
#include <fstream>
#include <string>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weir::buffer {

std::vector<int> parse_nodes(std::string_view list) {
  while (!list.empty() && (list.back() == '\n' || list.back() == ' ')) list.remove_suffix(1);
  std::vector<int> nodes;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc{} || first < 0) return {};
    int last = first;
    if (read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc{} || last < first) return {};
    }
    for (int node = first; node <= last && node < kMaxNumaNodes; ++node) nodes.push_back(node);
    at = read.ptr;
    if (at == end) break;
    if (*at != ',' || ++at == end) return {};
  }
  return nodes;
}

std::vector<int> numa_nodes() {
  std::ifstream file{"/sys/devices/system/node/has_memory"};
  std::string line;
  std::vector<int> nodes;
  if (std::getline(file, line)) nodes = parse_nodes(line);
  if (nodes.empty()) nodes.push_back(0);
  return nodes;
}

bool prefer_node([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes, int node) {
  if (node < 0 || node >= kMaxNumaNodes) return false;
#if defined(__linux__) && defined(SYS_mbind)
  constexpr int kPreferred = 1;                       // MPOL_PREFERRED
  constexpr unsigned long kBits = kMaxNumaNodes + 1;  // the kernel takes one for itself
  const unsigned long mask[2] = {1ul << node, 0};
  return ::syscall(SYS_mbind, data, bytes, kPreferred, mask, kBits, 0) == 0;
#else
  return false;
#endif
}

}  // namespace weir::buffer
