#include "handshake/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <span>

#include "crypto/entropy.h"
#include "crypto/secret.h"

namespace weir::handshake {
namespace {

Error refused_by_system(std::string_view what, std::string_view shown) {
  const int number = errno;
  return Error(Code::system, std::string(what) + " " + std::string(shown) + ": " + std::strerror(number));
}

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

Error bad_mode(std::string_view shown, mode_t mode, std::string_view advice) {
  return Error(Code::invalid_argument, std::string(shown) + " is open to other users (mode " + octal(mode) +
                                           "): chmod " + std::string(advice) + " it");
}

Error not_ours(std::string_view shown) {
  return Error(Code::invalid_argument, std::string(shown) + " belongs to another user");
}

Error foreign_secret(std::string_view shown, uid_t owner) {
  return Error(Code::invalid_argument, std::string(shown) + " belongs to another user (uid " + std::to_string(owner) +
                                           "), who can read and replace it: it must belong to root or to the user of "
                                           "this process (uid " +
                                           std::to_string(::geteuid()) + ")");
}

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string random_suffix() {
  std::array<std::byte, 8> bytes;
  crypto::SystemEntropy{}.fill(bytes);
  std::string text = ".";
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

}  // namespace

FileStamp stamp_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
#ifdef __APPLE__
  const timespec modified = status.st_mtimespec;
  const timespec changed = status.st_ctimespec;
#else
  const timespec modified = status.st_mtim;
  const timespec changed = status.st_ctim;
#endif
  return {.device = static_cast<std::uint64_t>(status.st_dev),
          .inode = static_cast<std::uint64_t>(status.st_ino),
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .modified_ns = nanoseconds(modified),
          .changed_ns = nanoseconds(changed)};
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

WipedText& WipedText::operator=(WipedText&& other) noexcept {
  if (this == &other) return *this;
  wipe();
  text_ = std::move(other.text_);
  other.wipe();  // a short string is copied, not moved
  return *this;
}

void WipedText::wipe() {
  crypto::wipe({reinterpret_cast<std::byte*>(text_.data()), text_.size()});
  text_.clear();
}

Result<std::optional<WipedText>> read_file(int directory, const std::string& name, std::string_view shown,
                                           FileRules rules) {
  // Without O_NONBLOCK a named pipe would hold us up for ever.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (rules.ours ? O_NOFOLLOW : 0);
  const Descriptor file(::openat(directory, name.c_str(), flags));
  if (!file.is_open()) {
    if (errno == ENOENT) return std::nullopt;
    if (errno == ELOOP) {
      return std::unexpected(Error(Code::invalid_argument, std::string(shown) + " is a symbolic link"));
    }
    return std::unexpected(refused_by_system("cannot read", shown));
  }
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) return std::unexpected(refused_by_system("cannot read", shown));
  if (!S_ISREG(status.st_mode)) {
    return std::unexpected(Error(Code::invalid_argument, std::string(shown) + " is not a regular file"));
  }
  if (rules.ours && status.st_uid != ::geteuid()) return std::unexpected(not_ours(shown));
  if (rules.readers != Readers::anybody && !may_own_secret(status.st_uid, ::geteuid())) {
    return std::unexpected(foreign_secret(shown, status.st_uid));
  }
  if (rules.readers == Readers::owner && (status.st_mode & 077) != 0) {
    return std::unexpected(bad_mode(shown, status.st_mode, "600"));
  }
  if (rules.readers == Readers::owner_and_group && (status.st_mode & 007) != 0) {
    return std::unexpected(bad_mode(shown, status.st_mode, "600"));
  }
  std::string content(rules.max_bytes + 1, '\0');
  const auto wiped = [&](Error error) {
    crypto::wipe(std::as_writable_bytes(std::span(content)));
    return error;
  };
  std::size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = ::read(file.number(), content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(wiped(refused_by_system("cannot read", shown)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  // Wiped before it shrinks: what lies beyond the size of a string is out of reach.
  WipedText whole(std::move(content));
  if (size > rules.max_bytes) {
    return std::unexpected(Error(Code::invalid_argument,
                                 std::string(shown) + " is larger than " + std::to_string(rules.max_bytes) + " bytes"));
  }
  return WipedText(std::string(whole.view().substr(0, size)));
}

Result<bool> create_file_once(int directory, const std::string& name, std::string_view shown, std::string_view content,
                              mode_t mode) {
  const std::string temporary = name + random_suffix();
  Descriptor file(::openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.is_open()) return std::unexpected(refused_by_system("cannot create", shown));
  std::optional<Error> error;
  bool created = false;
  // The umask may have taken bits away, never added any.
  if (!write_all(file.number(), content) || ::fchmod(file.number(), mode) != 0 || ::fsync(file.number()) != 0) {
    error = refused_by_system("cannot write", shown);
  } else if (::linkat(directory, temporary.c_str(), directory, name.c_str(), 0) == 0) {
    created = true;
  } else if (errno != EEXIST) {
    error = refused_by_system("cannot create", shown);
  }
  ::unlinkat(directory, temporary.c_str(), 0);
  if (error) return std::unexpected(*std::move(error));
  return created;
}

Result<Descriptor> open_private_directory(std::string path) {
  // With a slash at the end a symbolic link would be followed.
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return std::unexpected(refused_by_system("cannot create the directory", path));
  }
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.is_open()) {
    if (errno == ELOOP || errno == ENOTDIR) {
      return std::unexpected(Error(Code::invalid_argument, path + " is a symbolic link or not a directory"));
    }
    return std::unexpected(refused_by_system("cannot open the directory", path));
  }
  struct stat status {};
  if (::fstat(directory.number(), &status) != 0) {
    return std::unexpected(refused_by_system("cannot open the directory", path));
  }
  if (status.st_uid != ::geteuid()) return std::unexpected(not_ours(path));
  if ((status.st_mode & 077) != 0) return std::unexpected(bad_mode(path, status.st_mode, "700"));
  return directory;
}

}  // namespace weir::handshake
