// JsonObject: one JSON object, written key by key. Values that are objects or lists themselves are added as text.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

#include "apps/weir/utf8.h"

namespace weir::command {

// A JSON string of any bytes. Control characters are escaped, also those from U+007F to U+009F, which a terminal may
// obey. Each byte that is not part of UTF-8 becomes U+FFFD.
inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t bytes = utf8_character_bytes(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    text.remove_prefix(character.size());
    const auto first = static_cast<unsigned char>(character.front());
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kShortNames = "\"\\bfnrt";
    if (bytes == 0) {
      out += "\\ufffd";
    } else if (const std::size_t at = kShort.find(character.front()); at != kShort.npos) {
      out += {'\\', kShortNames[at]};
    } else if (first < 0x20 || first == 0x7f) {
      out += fmt::format("\\u{:04x}", first);
    } else if (first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(character[1]));
    } else {
      out += character;
    }
  }
  return out + '"';
}

class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::integral auto value) { return add_text(key, fmt::format("{}", value)); }
  JsonObject& add(std::string_view key, double value, int digits = 3) {
    // JSON has no word for infinity and the like.
    return add_text(key, std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "null");
  }
  JsonObject& add(std::string_view key, std::string_view value) { return add_text(key, json_string(value)); }
  JsonObject& add(std::string_view key, const char* value) { return add_text(key, json_string(value)); }
  JsonObject& add_text(std::string_view key, std::string_view json) {
    if (!members_.empty()) members_ += ", ";
    members_ += json_string(key);
    members_ += ": ";
    members_ += json;
    return *this;
  }
  std::string text() const { return '{' + members_ + '}'; }

 private:
  std::string members_;
};

}  // namespace weir::command
