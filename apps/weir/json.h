// JsonObject: one JSON object, written key by key. Values that are objects or lists themselves are added as text.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace weir::command {

inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::integral auto value) { return add_text(key, fmt::format("{}", value)); }
  JsonObject& add(std::string_view key, double value, int digits = 3) {
    return add_text(key, fmt::format("{:.{}f}", value, digits));
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
