// Bytes written as hexadecimal text, for the tests of this folder.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"

namespace weir::crypto {

inline std::vector<std::byte> from_hex(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    WEIR_CHECK(c >= 'a' && c <= 'f', "test vectors are written in lower-case hexadecimal");
    return c - 'a' + 10;
  };
  WEIR_CHECK(text.size() % 2 == 0, "two digits make a byte");
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(text[i]) * 16 + digit(text[i + 1])));
  }
  return bytes;
}

inline std::string to_hex(ByteSpan bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace weir::crypto
