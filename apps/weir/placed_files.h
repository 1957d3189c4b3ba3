// PlacedFiles: other Files whose errors say where they are, here or at a peer. A copy has two sides, and a path alone
// does not tell which of them is meant.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/weir/files.h"

namespace weir::command {

class PlacedFiles : public Files {
 public:
  // `place` as a sentence begins with it: "127.0.0.1:4433", "here, in '/srv'".
  PlacedFiles(Files& files, std::string place) : files_(files), place_(std::move(place)) {}

  Result<FileInfo> look(const std::string& path) override { return placed(files_.look(path)); }
  Result<Listing> list(const std::string& path, const std::string& after) override {
    return placed(files_.list(path, after));
  }
  Result<void> read(const FileVersion& file, std::uint64_t block, std::span<std::byte> into) override {
    return placed(files_.read(file, block, into));
  }
  Result<std::vector<Digest>> sums(const FileVersion& file, Stage stage, BlockRange range) override {
    return placed(files_.sums(file, stage, range));
  }
  Result<void> make_directory(const std::string& path, std::uint32_t mode) override {
    return placed(files_.make_directory(path, mode));
  }
  Result<std::uint64_t> begin(const FileVersion& file) override { return placed(files_.begin(file)); }
  Result<void> write(const FileVersion& file, std::uint64_t block, Bytes bytes) override {
    return placed(files_.write(file, block, bytes));
  }
  Result<void> finish(const FileVersion& file) override { return placed(files_.finish(file)); }

 private:
  // Errors about files only: the others are about the peer, and name it.
  template <class T>
  Result<T> placed(Result<T> result) const {
    if (result) return result;
    const Error& error = result.error();
    if (error.code() != Code::application && error.code() != Code::refused) return result;
    return std::unexpected(Error(error.code(), place_ + ": " + std::string(error.message()), error.may_have_run()));
  }

  Files& files_;
  std::string place_;
};

}  // namespace weir::command
