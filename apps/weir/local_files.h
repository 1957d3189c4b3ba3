// LocalFiles: a directory of this machine. Holds one descriptor, of the root; everything else is opened for each call,
// one component after the other, and never through a symbolic link. The names of a few large directories are kept for
// the next pages of their listings.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "apps/weir/files.h"
#include "apps/weir/name_list.h"

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
    std::size_t name_list_bytes = NameLists::kListBytes;
  };
  // The root itself may be reached through links: who names it owns this process.
  static Result<std::unique_ptr<LocalFiles>> open(const std::string& root, const Options& options);

  // Since it was opened; large directories are not read again for each page of a listing.
  std::uint64_t directories_read() const { return directories_read_.load(std::memory_order_relaxed); }

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
  Result<std::shared_ptr<const NameList>> read_names(int opened, const std::string& path, const std::string& after);
  Result<void> check_writing(const FileVersion& file) const;
  Result<Descriptor> open_file(const Place& place, const std::string& path, int flags) const;
  Result<Descriptor> open_part(const Place& place, const std::string& path, int flags) const;
  void forget_locked(const Place& part) const;
  Result<Descriptor> open_version(const FileVersion& file) const;

  Descriptor root_;
  Options options_;
  std::uint32_t mask_;  // of the permissions that new files get
  NameLists lists_;
  std::atomic<std::uint64_t> directories_read_{0};
};

}  // namespace weir::command
