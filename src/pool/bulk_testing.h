// What the tests of put, get and broadcast share.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pool/large_testing.h"

namespace weir::testing {

// A file that goes with its test.
class TemporaryFile {
 public:
  TemporaryFile() {
    const char* directory = std::getenv("TEST_TMPDIR");
    path_ = std::string(directory != nullptr ? directory : "/tmp") + "/weir-bulk-XXXXXX";
    const int file = mkstemp(path_.data());
    EXPECT_GE(file, 0);
    ::close(file);
  }
  explicit TemporaryFile(std::string_view text) : TemporaryFile() { write(text); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { unlink(path_.c_str()); }

  const std::string& path() const { return path_; }
  void write(std::string_view text) const {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
    std::fclose(file);
  }
  std::string read() const {
    std::string text;
    std::FILE* file = std::fopen(path_.c_str(), "rb");
    char bytes[65'536];
    for (std::size_t n; (n = std::fread(bytes, 1, sizeof bytes, file)) != 0;) text.append(bytes, n);
    std::fclose(file);
    return text;
  }

 private:
  std::string path_;
};

// As long as it lives no file of this process grows beyond so many bytes: the beginning of a write is done, then it
// fails.
class FullDisk {
 public:
  explicit FullDisk(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit less{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &less), 0);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

// Two pools that know each other.
struct BulkPair {
  explicit BulkPair(int server_workers = 1, int client_workers = 1, const Limits& limits = {}) {
    Config listening = server_config(server_workers);
    listening.limits = limits;
    Config calling = client_config(client_workers);
    calling.limits = limits;
    server.emplace(open(listening));
    client.emplace(open(calling));
  }
  Peer to() const { return client->peer(server->listen_address()); }
  std::optional<Pool> server, client;
};

inline std::span<std::byte> bytes_of(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "no error" : result.error().to_string();
}

}  // namespace weir::testing
