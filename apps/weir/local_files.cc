#include "apps/weir/local_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "apps/weir/path.h"
#include "base/check.h"

namespace weir::command {

namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
// O_NONBLOCK: a pipe that somebody put there must not make us wait for its other end.
constexpr int kFileFlags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
constexpr std::uint32_t kPermissions = 0777;
constexpr mode_t kPartMode = 0600;  // until it is complete
constexpr std::size_t kMaxDirectoryEntries = 1'000'000;
constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

Error trouble(std::string_view path, std::string_view why) {
  return {Code::application, fmt::format("{}: {}", shown(path), why)};
}

// What the system said, for people.
Error system_trouble(std::string_view path, int number) {
  switch (number) {
    case ELOOP:
      return {Code::refused, fmt::format("{} is refused: there is a symbolic link on the way", shown(path))};
    case EACCES:
    case EPERM:
      return trouble(path, "permission denied");
    case ENOSPC:
    case EDQUOT:
      return trouble(path, "there is no space left");
    default:
      return trouble(path, std::strerror(number));
  }
}

FileInfo info_of(const struct stat& status) {
  FileInfo info;
  info.kind = S_ISREG(status.st_mode)   ? FileKind::file
              : S_ISDIR(status.st_mode) ? FileKind::directory
                                        : FileKind::other;
  info.mode = status.st_mode & kPermissions;
  info.bytes = info.kind == FileKind::file ? static_cast<std::uint64_t>(status.st_size) : 0;
#ifdef __APPLE__
  const timespec& modified = status.st_mtimespec;
#else
  const timespec& modified = status.st_mtim;
#endif
  info.modified_ns = modified.tv_sec * kNanosecondsPerSecond + modified.tv_nsec;
  return info;
}

// Absent only if it is known to be: what cannot be looked at must not be left out in silence.
Result<FileInfo> look_at(int directory, const std::string& name, std::string_view path) {
  struct stat status {};
  if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return info_of(status);
  if (errno == ENOENT) return FileInfo{};
  return std::unexpected(system_trouble(path, errno));
}

bool is_version(const FileInfo& now, const FileVersion& file) {
  return now.bytes == file.info.bytes && now.modified_ns == file.info.modified_ns;
}

Result<void> check_unchanged(int opened, const FileVersion& file) {
  struct stat status {};
  if (fstat(opened, &status) != 0) return std::unexpected(system_trouble(file.path, errno));
  if (!is_version(info_of(status), file)) return std::unexpected(trouble(file.path, "it changed while it was copied"));
  return {};
}

bool read_fully(int file, std::span<std::byte> into, std::uint64_t offset) {
  while (!into.empty()) {
    ssize_t got = pread(file, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) errno = EIO;
      return false;
    }
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

bool write_fully(int file, Bytes bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    ssize_t put = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return true;
}

// The same copy finds its part again; another version of the file does not.
std::string part_name(std::string_view name, const FileInfo& info) {
  std::string all = fmt::format("{}\n{}\n{}\n{}", info.bytes, info.modified_ns, info.mode, name);
  Digest digest = digest_of(as_bytes(all));
  std::string text(kPartPrefix);
  for (std::size_t i = 0; i < 12; ++i) text += fmt::format("{:02x}", std::to_integer<unsigned>(digest[i]));
  return text;
}

}  // namespace

Digest digest_of(Bytes bytes) {
  Digest digest;
  unsigned length = 0;
  const int made = EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &length,
                              EVP_sha256(), nullptr);
  WEIR_CHECK(made == 1 && length == digest.size(), "SHA-256 is always there");
  return digest;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

struct LocalFiles::Place {
  Descriptor directory;
  std::string name;  // "." for the root
};

LocalFiles::LocalFiles(Descriptor root, const Options& options) : root_(std::move(root)), options_(options) {
  mode_t mask = ::umask(0);
  ::umask(mask);
  mask_ = ~static_cast<std::uint32_t>(mask) & kPermissions;
}

Result<std::unique_ptr<LocalFiles>> LocalFiles::open(const std::string& root, const Options& options) {
  Descriptor descriptor(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open()) return std::unexpected(system_trouble(root, errno));
  return std::unique_ptr<LocalFiles>(new LocalFiles(std::move(descriptor), options));
}

Result<LocalFiles::Place> LocalFiles::find(const std::string& path) const {
  auto names = split_path(path);
  if (!names) return std::unexpected(names.error());
  Descriptor here(::openat(root_.number(), ".", kDirectoryFlags));
  if (!here.is_open()) return std::unexpected(system_trouble(path, errno));
  if (names->empty()) return Place{std::move(here), "."};
  for (std::size_t i = 0; i + 1 < names->size(); ++i) {
    std::string name((*names)[i]);
    Descriptor next(::openat(here.number(), name.c_str(), kDirectoryFlags));
    if (!next.is_open()) {
      // A link to a directory is "not a directory" when it is not followed.
      int number = errno;
      bool is_link =
          number == ENOTDIR && look_at(here.number(), name, path).value_or(FileInfo{}).kind == FileKind::other;
      return std::unexpected(system_trouble(path, is_link ? ELOOP : number));
    }
    here = std::move(next);
  }
  return Place{std::move(here), std::string(names->back())};
}

Result<Descriptor> LocalFiles::open_file(const Place& place, const std::string& path, int flags) const {
  Descriptor file(::openat(place.directory.number(), place.name.c_str(), kFileFlags | flags, kPartMode));
  if (!file.is_open()) return std::unexpected(system_trouble(path, errno));
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return std::unexpected(system_trouble(path, errno));
  if (!S_ISREG(status.st_mode)) return std::unexpected(trouble(path, "not a plain file"));
  return file;
}

// A name that is predictable may be somebody else's, who could read and change what is copied.
Result<Descriptor> LocalFiles::open_part(const Place& place, const std::string& path, int flags) const {
  auto part = open_file(place, path, flags);
  if (!part) return part;
  struct stat status {};
  if (fstat(part->number(), &status) != 0) return std::unexpected(system_trouble(path, errno));
  if (status.st_uid != geteuid() || status.st_nlink != 1) {
    return std::unexpected(trouble(path, fmt::format("there is a {} that is not ours", place.name)));
  }
  return part;
}

Result<FileInfo> LocalFiles::look(const std::string& path) {
  auto place = find(path);
  if (!place) return std::unexpected(place.error());
  return look_at(place->directory.number(), place->name, path);
}

Result<std::shared_ptr<const NameList>> LocalFiles::read_names(int opened, const std::string& path,
                                                               const std::string& after) {
  // The stream closes its descriptor; the caller's stays.
  const int number = ::fcntl(opened, F_DUPFD_CLOEXEC, 0);
  if (number < 0) return std::unexpected(system_trouble(path, errno));
  auto close = [](DIR* directory) { closedir(directory); };
  std::unique_ptr<DIR, decltype(close)> directory(fdopendir(number), close);
  if (directory == nullptr) {
    const int why = errno;
    ::close(number);
    return std::unexpected(system_trouble(path, why));
  }
  directories_read_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count that publishes nothing
  auto names = std::make_shared<NameList>(after, options_.name_list_bytes);
  for (std::size_t seen = 0;; ++seen) {
    errno = 0;  // null is the end, or an error
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr && errno != 0) return std::unexpected(system_trouble(path, errno));
    if (entry == nullptr) break;
    if (seen == kMaxDirectoryEntries) return std::unexpected(trouble(path, "the directory is too large"));
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && !name.starts_with(kPartPrefix)) names->add(name);
  }
  names->finish();
  return names;
}

Result<Listing> LocalFiles::list(const std::string& path, const std::string& after) {
  auto place = find(path);
  if (!place) return std::unexpected(place.error());
  const Descriptor directory(::openat(place->directory.number(), place->name.c_str(), kDirectoryFlags));
  if (!directory.is_open()) return std::unexpected(system_trouble(path, errno));
  struct stat status {};
  if (fstat(directory.number(), &status) != 0) return std::unexpected(system_trouble(path, errno));
  const NameLists::Directory key{.device = static_cast<std::uint64_t>(status.st_dev),
                                 .inode = static_cast<std::uint64_t>(status.st_ino)};
  std::shared_ptr<const NameList> names = after.empty() ? nullptr : lists_.find(key, after);
  if (names == nullptr) {
    auto fresh = read_names(directory.number(), path, after);
    if (!fresh) return std::unexpected(fresh.error());
    names = *std::move(fresh);
    if (names->size() > kEntriesPerCall) lists_.put(key, names);
  }
  std::vector<std::string> page = names->page(after, kEntriesPerCall);
  Listing listing{.entries = {}, .has_more = !page.empty() && names->has_more(page.back())};
  for (std::string& name : page) {
    Result<FileInfo> info = look_at(directory.number(), name, join(path, name));
    if (!info) return std::unexpected(info.error());
    listing.entries.push_back({std::move(name), *info});
  }
  return listing;
}

Result<Descriptor> LocalFiles::open_version(const FileVersion& file) const {
  auto place = find(file.path);
  if (!place) return std::unexpected(place.error());
  auto opened = open_file(*place, file.path, O_RDONLY);
  if (!opened) return opened;
  if (auto checked = check_unchanged(opened->number(), file); !checked) return std::unexpected(checked.error());
  return opened;
}

Result<void> LocalFiles::read(const FileVersion& file, std::uint64_t block, std::span<std::byte> into) {
  auto opened = open_version(file);
  if (!opened) return std::unexpected(opened.error());
  if (block >= blocks_of(file.info.bytes) || into.size() != block_bytes(file.info.bytes, block)) {
    return std::unexpected(trouble(file.path, "there is no such block"));
  }
  if (!read_fully(opened->number(), into, block * kBlockBytes)) {
    return std::unexpected(system_trouble(file.path, errno));
  }
  return check_unchanged(opened->number(), file);  // or this block is of two versions
}

Result<std::vector<Digest>> LocalFiles::sums(const FileVersion& file, Stage stage, BlockRange range) {
  Result<Descriptor> opened = std::unexpected(Error(Code::application, ""));
  if (stage == Stage::whole) {
    opened = open_version(file);
  } else {
    auto place = find_part(file);
    if (!place) return std::unexpected(place.error());
    opened = open_part(*place, file.path, O_RDONLY);
  }
  if (!opened) return std::unexpected(opened.error());
  struct stat status {};
  if (fstat(opened->number(), &status) != 0) return std::unexpected(system_trouble(file.path, errno));
  auto there = std::min(static_cast<std::uint64_t>(status.st_size), file.info.bytes);
  std::vector<Digest> digests;
  std::vector<std::byte> bytes;
  std::uint64_t blocks = blocks_of(file.info.bytes);
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(range.count, kSumsPerCall); ++i) {
    std::uint64_t block = range.first + i;
    if (range.first >= blocks || block >= blocks) break;
    bytes.resize(block_bytes(file.info.bytes, block));
    if (block * kBlockBytes + bytes.size() > there) break;
    if (!read_fully(opened->number(), bytes, block * kBlockBytes)) {
      return std::unexpected(system_trouble(file.path, errno));
    }
    digests.push_back(digest_of(bytes));
  }
  if (stage == Stage::whole) {
    if (auto checked = check_unchanged(opened->number(), file); !checked) return std::unexpected(checked.error());
  }
  return digests;
}

// ---- writing --------------------------------------------------------------------------------------------------------

Result<LocalFiles::Place> LocalFiles::find_part(const FileVersion& file) const {
  auto place = find(file.path);
  if (!place) return place;
  if (place->name == ".") return std::unexpected(trouble(file.path, "it is a directory"));
  place->name = part_name(place->name, file.info);
  return place;
}

Result<void> LocalFiles::check_writing(const FileVersion& file) const {
  if (options_.read_only) return std::unexpected(Error(Code::refused, "this directory is served to be read only"));
  if (file.info.bytes > options_.largest_bytes) {
    return std::unexpected(Error(Code::refused, fmt::format("{} is refused: files may have at most {} bytes here",
                                                            shown(file.path), options_.largest_bytes)));
  }
  return {};
}

Result<void> LocalFiles::make_directory(const std::string& path, std::uint32_t mode) {
  if (auto checked = check_writing({path, {}}); !checked) return checked;
  auto place = find(path);
  if (!place) return std::unexpected(place.error());
  if (place->name == ".") return {};
  // Its owner must be able to fill it, whatever the original's owner may.
  constexpr std::uint32_t kOwner = 0700;
  if (mkdirat(place->directory.number(), place->name.c_str(), (mode & mask_) | kOwner) == 0) return {};
  if (errno != EEXIST) return std::unexpected(system_trouble(path, errno));
  Result<FileInfo> there = look_at(place->directory.number(), place->name, path);
  if (!there) return std::unexpected(there.error());
  if (there->kind == FileKind::directory) return {};
  return std::unexpected(trouble(path, "it exists and is not a directory"));
}

// A copy that ended between finish()'s steps leaves a part that has the original's permissions, perhaps none to write:
// it is begun anew, because it cannot be gone on with.
void LocalFiles::forget_locked(const Place& part) const {
  struct stat status {};
  if (fstatat(part.directory.number(), part.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) return;
  if ((status.st_mode & kPartMode) != kPartMode) unlinkat(part.directory.number(), part.name.c_str(), 0);
}

Result<std::uint64_t> LocalFiles::begin(const FileVersion& file) {
  if (auto checked = check_writing(file); !checked) return std::unexpected(checked.error());
  auto place = find(file.path);
  if (!place) return std::unexpected(place.error());
  Result<FileInfo> there = look_at(place->directory.number(), place->name, file.path);
  if (!there) return std::unexpected(there.error());
  if (there->kind == FileKind::directory) return std::unexpected(trouble(file.path, "it is a directory"));
  place->name = part_name(place->name, file.info);
  forget_locked(*place);
  auto part = open_part(*place, file.path, O_RDWR | O_CREAT);
  if (!part) return std::unexpected(part.error());
  struct stat status {};
  if (fstat(part->number(), &status) != 0) return std::unexpected(system_trouble(file.path, errno));
  return static_cast<std::uint64_t>(status.st_size);
}

Result<void> LocalFiles::write(const FileVersion& file, std::uint64_t block, Bytes bytes) {
  if (auto checked = check_writing(file); !checked) return checked;
  if (block >= blocks_of(file.info.bytes) || bytes.size() != block_bytes(file.info.bytes, block)) {
    return std::unexpected(trouble(file.path, "there is no such block"));
  }
  auto place = find_part(file);
  if (!place) return std::unexpected(place.error());
  auto part = open_part(*place, file.path, O_WRONLY);
  if (!part) return std::unexpected(part.error());
  if (!write_fully(part->number(), bytes, block * kBlockBytes)) {
    return std::unexpected(system_trouble(file.path, errno));
  }
  return {};
}

Result<void> LocalFiles::finish(const FileVersion& file) {
  if (auto checked = check_writing(file); !checked) return checked;
  auto place = find(file.path);
  if (!place) return std::unexpected(place.error());
  auto part_place = find_part(file);
  if (!part_place) return std::unexpected(part_place.error());
  auto part = open_part(*part_place, file.path, O_WRONLY);
  if (!part) return std::unexpected(part.error());
  struct stat status {};
  if (fstat(part->number(), &status) != 0) return std::unexpected(system_trouble(file.path, errno));
  if (static_cast<std::uint64_t>(status.st_size) != file.info.bytes) {
    return std::unexpected(trouble(file.path, "it is not complete"));
  }
  std::int64_t seconds = file.info.modified_ns / kNanosecondsPerSecond;
  std::int64_t rest = file.info.modified_ns % kNanosecondsPerSecond;
  if (rest < 0) {
    rest += kNanosecondsPerSecond;
    --seconds;
  }
  timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                       {.tv_sec = static_cast<time_t>(seconds), .tv_nsec = static_cast<long>(rest)}};
  // On the disk before it has its name: a power cut must not leave a file that only looks complete.
  if (futimens(part->number(), times) != 0 || fsync(part->number()) != 0) {
    return std::unexpected(system_trouble(file.path, errno));
  }
  if (fchmod(part->number(), static_cast<mode_t>(file.info.mode & mask_)) != 0 ||
      renameat(part_place->directory.number(), part_place->name.c_str(), place->directory.number(),
               place->name.c_str()) != 0) {
    int number = errno;
    (void)fchmod(part->number(), kPartMode);  // so that the next attempt can go on with it
    return std::unexpected(system_trouble(file.path, number));
  }
  return {};
}

}  // namespace weir::command
