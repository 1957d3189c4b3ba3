// LocalFiles: a directory of this machine. Holds one descriptor, of the root; everything else is opened for each call,
// one component after the other, and never through a symbolic link.
#pragma once

#include <memory>
#include <string>

#include "apps/weir/files.h"

namespace weir::command {

// Closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

class LocalFiles : public Files {
 public:
  struct Options {
    bool read_only = false;
    std::uint64_t largest_bytes = std::uint64_t{1} << 62;  // of a file that is written
  };
  // The root itself may be reached through links: who names it owns this process.
  static Result<std::unique_ptr<LocalFiles>> open(const std::string& root, const Options& options);

  Result<FileInfo> look(const std::string& path) override;
  Result<Listing> list(const std::string& path, const std::string& after) override;
  Result<void> read(const FileVersion& file, std::uint64_t block, std::span<std::byte> into) override;
  Result<std::vector<Digest>> sums(const FileVersion& file, Stage stage, BlockRange range) override;
  Result<void> make_directory(const std::string& path, std::uint32_t mode) override;
  Result<std::uint64_t> begin(const FileVersion& file) override;
  Result<void> write(const FileVersion& file, std::uint64_t block, Bytes bytes) override;
  Result<void> finish(const FileVersion& file) override;

 private:
  struct Place;  // an open directory and a name in it

  LocalFiles(Descriptor root, const Options& options);
  Result<Place> find(const std::string& path) const;
  Result<Place> find_part(const FileVersion& file) const;
  Result<void> check_writing(const FileVersion& file) const;
  Result<Descriptor> open_file(const Place& place, const std::string& path, int flags) const;
  Result<Descriptor> open_part(const Place& place, const std::string& path, int flags) const;
  void forget_locked(const Place& part) const;
  Result<Descriptor> open_version(const FileVersion& file) const;

  Descriptor root_;
  Options options_;
  std::uint32_t mask_;  // of the permissions that new files get
};

}  // namespace weir::command
