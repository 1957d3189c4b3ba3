#include "apps/weir/path.h"

#include <fmt/format.h>

#include "apps/weir/utf8.h"

namespace weir::command {

namespace {

Error refuse(std::string_view path, std::string_view why) {
  constexpr std::size_t kMostShown = 200;
  return {Code::refused, fmt::format("{} is refused: {}", shown(path.substr(0, kMostShown)), why)};
}

// How many bytes the first character has; 0 if it is not to be shown: a control character, or not UTF-8.
std::size_t shown_character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x20 || first == 0x7f) return 0;
  const std::size_t bytes = utf8_character_bytes(text);
  const bool is_control = bytes == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;  // among them CSI
  return is_control ? 0 : bytes;
}

}  // namespace

Result<void> check_name(std::string_view name) {
  if (name.empty()) return std::unexpected(refuse(name, "a name must not be empty"));
  if (name == "." || name == "..") return std::unexpected(refuse(name, "a path must not leave its root"));
  if (name.size() > kMaxNameBytes) return std::unexpected(refuse(name, "a name has at most 255 bytes"));
  if (name.find('/') != name.npos) return std::unexpected(refuse(name, "a name has no slash"));
  if (name.find('\0') != name.npos) return std::unexpected(refuse(name, "a name has no zero byte"));
  if (name.starts_with(kPartPrefix)) {
    return std::unexpected(refuse(name, "such names are for files that are being copied"));
  }
  return {};
}

Result<std::vector<std::string_view>> split_path(std::string_view path) {
  std::vector<std::string_view> names;
  if (path.empty() || path == ".") return names;
  if (path.size() > kMaxPathBytes) return std::unexpected(refuse(path, "a path has at most 4,096 bytes"));
  if (path.front() == '/') return std::unexpected(refuse(path, "a path must be relative to its root"));
  for (std::string_view rest = path;;) {
    std::size_t slash = rest.find('/');
    std::string_view name = rest.substr(0, slash);
    if (auto checked = check_name(name); !checked) return std::unexpected(checked.error());
    if (names.size() == kMaxDepth) return std::unexpected(refuse(path, "a path has at most 128 components"));
    names.push_back(name);
    if (slash == rest.npos) return names;
    rest.remove_prefix(slash + 1);
  }
}

std::string join(std::string_view directory, std::string_view name) {
  return directory.empty() || directory == "." ? std::string(name) : fmt::format("{}/{}", directory, name);
}

std::string shown(std::string_view path) {
  std::string quoted = "'";
  for (char c : path) {
    if (c == '\\' || c == '\'') quoted += '\\';
    quoted += c;
  }
  return printable(quoted + '\'');
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t bytes = shown_character_bytes(text);
    if (bytes == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
      bytes = 1;
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace weir::command
