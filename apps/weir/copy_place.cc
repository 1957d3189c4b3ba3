#include "apps/weir/copy_place.h"

#include <algorithm>
#include <filesystem>

namespace weir::command {

CopyPlace parse_place(std::string_view text) {
  std::size_t host = text.starts_with('[') ? text.find(']') : 0;
  std::size_t first = host == text.npos ? text.npos : text.find(':', host);
  std::size_t second = first == text.npos ? text.npos : text.find(':', first + 1);
  if (second == text.npos || first == 0 || text.substr(0, first).find('/') != text.npos) return {{}, std::string(text)};
  std::string_view port = text.substr(first + 1, second - first - 1);
  if (port.empty() || !std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; })) {
    return {{}, std::string(text)};
  }
  std::string_view path = text.substr(second + 1);
  while (path.ends_with('/')) path.remove_suffix(1);
  return {std::string(text.substr(0, second)), std::string(path)};
}

std::string name_of(const CopyPlace& place) {
  if (place.is_remote()) return place.path.substr(place.path.rfind('/') + 1);
  std::error_code error;
  std::filesystem::path path(place.path);
  // ".", ".." and what ends with a slash have another name that they are known by.
  if (!path.has_filename() || path.filename() == "." || path.filename() == "..") {
    path = std::filesystem::canonical(path, error);
  }
  return path.filename().string();
}

}  // namespace weir::command
