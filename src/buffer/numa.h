// NUMA: which nodes there are, and binding memory to one. Where the system says nothing there is one node.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace weir::buffer {

inline constexpr int kMaxNumaNodes = 64;

// "0-2,5" as the kernel writes it. Empty if it makes no sense; nodes from kMaxNumaNodes on are left out.
std::vector<int> parse_nodes(std::string_view list);

// Nodes that have memory; never empty.
std::vector<int> numa_nodes();

// Pages of [data, data + bytes) that nobody touched yet are to come from this node, while it has some. False: the
// system cannot; they come from where they are touched first. `data` is at the start of a page.
bool prefer_node(void* data, std::size_t bytes, int node);

}  // namespace weir::buffer
