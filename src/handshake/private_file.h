// Files that hold secrets: read and made so that nobody else can look at them or slip in others.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "weir/error.h"

namespace weir::handshake {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
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

// A text that leaves no trace in memory. Moves.
class WipedText {
 public:
  WipedText() = default;
  explicit WipedText(std::string text) : text_(std::move(text)) {}
  WipedText(WipedText&& other) noexcept { *this = std::move(other); }
  WipedText& operator=(WipedText&& other) noexcept;
  ~WipedText() { wipe(); }
  std::string_view view() const { return text_; }

 private:
  void wipe();
  std::string text_;
};

// What tells one version of a file from another. All zeros: there is none.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
FileStamp stamp_of(const std::string& path);

enum class Readers { anybody, owner_and_group, owner };

// The owner of a file can change its mode and its content at any time. A secret of a process that runs as `user` is
// therefore in a file of that user, or of root, who has every right anyway.
constexpr bool may_own_secret(uid_t owner, uid_t user) { return owner == user || owner == 0; }

struct FileRules {
  std::size_t max_bytes = 0;
  // Who may be able to read it; with others it is refused. If not anybody may, it is a secret: may_own_secret() holds.
  Readers readers = Readers::anybody;
  bool ours = false;  // it must belong to this user and be no symbolic link
};

// A missing file is no error: nullopt. `shown` names the file in errors. `directory` may be AT_FDCWD.
Result<std::optional<WipedText>> read_file(int directory, const std::string& name, std::string_view shown,
                                           FileRules rules);

// Makes a file with all of its content at once, readable by us only: nobody ever sees half of it. False if there is
// one already, which stays as it is.
Result<bool> create_file_once(int directory, const std::string& name, std::string_view shown, std::string_view content,
                              mode_t mode = 0600);

// Makes the directory if it is missing (not those above it). It must be ours, no symbolic link, and closed to all
// others.
Result<Descriptor> open_private_directory(std::string path);

}  // namespace weir::handshake
