// The test vectors of docs/protocol.md, as a reader of the page finds them: rows "| name | `hex` |". Tests read them
// there, so that page and code cannot part.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace weir::testing {

class ProtocolPage {
 public:
  explicit ProtocolPage(const char* path) {
    std::ifstream page(path);
    bool is_there = false;
    for (std::string line; std::getline(page, line);) {
      is_there |= line == "## Test vectors";
      const std::size_t middle = line.rfind(" | `");
      if (!is_there || !line.starts_with("| ") || middle == std::string::npos || !line.ends_with("` |")) continue;
      const std::string name = line.substr(2, middle - 2);
      const std::string hex = line.substr(middle + 4, line.size() - 3 - (middle + 4));
      if (hex.find_first_not_of("0123456789abcdef") != std::string::npos) continue;
      EXPECT_TRUE(values_.emplace(name, hex).second) << name << " comes twice";
    }
    EXPECT_TRUE(is_there) << path << " has no test vectors";
  }

  // The value of this name on the page is `bytes`.
  void expect(const std::string& name, ByteSpan bytes) const {
    std::string hex;
    for (const std::byte byte : bytes) {
      hex += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
      hex += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
    }
    const auto found = values_.find(name);
    EXPECT_EQ(found == values_.end() ? "" : found->second, hex) << "the page's value of: " << name;
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace weir::testing
