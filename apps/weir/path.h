// Names of files as peers give them: checked before anything is done with them, and shown without their tricks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weir/error.h"

namespace weir::command {

inline constexpr std::size_t kMaxNameBytes = 255;
inline constexpr std::size_t kMaxPathBytes = 4096;
inline constexpr std::size_t kMaxDepth = 128;
inline constexpr std::string_view kPartPrefix = ".weir-part-";  // files that are being copied; nobody else's names

// The components; none for "" and ".", which are the root. Refuses "..", absolute paths, names that are empty, too
// long, or begin with kPartPrefix.
Result<std::vector<std::string_view>> split_path(std::string_view path);
// One component.
Result<void> check_name(std::string_view name);
std::string join(std::string_view directory, std::string_view name);
// Quoted, with everything escaped that a terminal could obey.
std::string shown(std::string_view path);
// A sentence that somebody else may have had a part in, with everything escaped that a terminal could obey: control
// characters, also those of eight bits, and what is not UTF-8.
std::string printable(std::string_view text);

}  // namespace weir::command
