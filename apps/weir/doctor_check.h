// What `weir doctor` looks at: each check reads one fact of this machine and says what it means for Weir.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace weir::command {

struct Check {
  std::string name;
  bool ok = true;
  std::string found;  // the fact
  std::string costs;  // what it costs, if not ok; or whom it may cost something
  std::string mend;   // the command that mends it, if there are costs; or why there is none
};

// Reads below `root` ("/" but in tests). A fact that cannot be read is ok and says so: not every system has it.
std::vector<Check> check_machine(const std::filesystem::path& root);

// The single ones that depend on this process's limits or on files alone.
Check check_descriptors();
// Whether this process gets the buffers that a pool asks for, whatever the system's limit is: with CAP_NET_ADMIN.
bool may_force_socket_buffers();
std::vector<Check> check_socket_buffers(const std::filesystem::path& root, bool may_force);
Check check_locked_memory(const std::filesystem::path& root);
Check check_map_count(const std::filesystem::path& root);
Check check_huge_pages(const std::filesystem::path& root);
Check check_isolation(const std::filesystem::path& root, int cores);
Check check_clock_source(const std::filesystem::path& root);

}  // namespace weir::command
