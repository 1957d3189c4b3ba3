// A directory of its own for a test, removed with all that is in it.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"

namespace weir::handshake::testing {

class TestDirectory {
 public:
  TestDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "weir-test-XXXXXX").string();
    WEIR_CHECK(::mkdtemp(path_.data()) != nullptr, "no directory for a test");
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path(std::string_view name = "") const { return name.empty() ? path_ : path_ + "/" + std::string(name); }
  std::string write(std::string_view name, std::string_view content, mode_t mode = 0600) const {
    std::ofstream(path(name), std::ios::binary | std::ios::trunc) << content;
    ::chmod(path(name).c_str(), mode);
    return path(name);
  }

 private:
  std::string path_;
};

inline mode_t mode_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

}  // namespace weir::handshake::testing
