#include "pool/placement.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "buffer/seal.h"
#include "buffer/work.h"
#include "crypto/secret.h"
#include "pool/bulk_frame.h"
#include "pool/sealing.h"

namespace weir {

Placement Placement::memory(std::span<std::byte> bytes, Access access) {
  Placement placement;
  placement.parts_.memory = bytes;
  placement.parts_.access = access;
  return placement;
}

Placement Placement::constant(Bytes bytes) {
  // Never written to: there is no access but getting.
  return memory({const_cast<std::byte*>(bytes.data()), bytes.size()}, Access::get_only);
}

Placement Placement::file(std::string_view path, const FileOptions& options) {
  Placement placement;
  placement.parts_.path = path;
  placement.parts_.file = options;
  placement.parts_.access = options.access;
  return placement;
}

Placement Placement::tee(std::span<std::byte> cache) && {
  parts_.cache = cache;
  return std::move(*this);
}

Placement Placement::tee(std::function<void(std::uint64_t, Bytes)> function) && {
  parts_.tee = std::move(function);
  return std::move(*this);
}

Placement Placement::guard(std::function<Result<void>(const BulkRequest&)> function) && {
  parts_.guard = std::move(function);
  return std::move(*this);
}

}  // namespace weir

namespace weir::pool {
namespace {

constinit thread_local const Placed* inside_of_this_thread = nullptr;

// A tee runs in here.
class Inside {
 public:
  explicit Inside(const Placed* placed) { inside_of_this_thread = placed; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { inside_of_this_thread = nullptr; }
};

// As much as fits.
void copy(ByteSpan from, MutableByteSpan to) {
  const std::size_t fits = std::min(from.size(), to.size());
  std::memcpy(to.data(), from.data(), fits);
  buffer::count(buffer::work.copied_bytes, fits);
}

std::string words_of_errno() { return std::generic_category().message(errno); }

int flags_of(const FileOptions& options) {
  const int access = options.access == Access::get_only   ? O_RDONLY
                     : options.access == Access::put_only ? O_WRONLY
                                                          : O_RDWR;
  return access | O_CLOEXEC | (options.create ? O_CREAT : 0);
}

}  // namespace

// ---- Placed --------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<Placed>> Placed::open(std::string name, Placement placement) {
  Placement::Parts parts = std::move(placement).release();
  int file = -1;
  if (!parts.path.empty()) {
    file = ::open(parts.path.c_str(), flags_of(parts.file), 0644);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) {
      Error error(Code::system, "cannot open " + parts.path + ": " + words_of_errno());
      if (file >= 0) ::close(file);
      return std::unexpected(std::move(error));
    }
    if (!S_ISREG(status.st_mode)) {
      ::close(file);
      return std::unexpected(Error(Code::invalid_argument, parts.path + " is no ordinary file"));
    }
  }
  return std::make_shared<Placed>(std::move(name), std::move(parts), file);
}

Placed::Placed(std::string name, Placement::Parts parts, int file)
    : name_(std::move(name)), parts_(std::move(parts)), file_(file) {}

Placed::~Placed() {
  if (file_ >= 0) ::close(file_);
}

Error Placed::gone() const { return {Code::refused, "\"" + name_ + "\" was taken away"}; }

Error Placed::failed(const char* what) const {
  return {Code::system, "cannot " + std::string(what) + " \"" + name_ + "\": " + words_of_errno()};
}

Result<std::uint64_t> Placed::bytes_locked() const {
  if (file_ < 0) return parts_.memory.size();
  struct stat status {};
  if (fstat(file_, &status) != 0) return std::unexpected(failed("look at"));
  return static_cast<std::uint64_t>(status.st_size);
}

Result<std::uint64_t> Placed::bytes() {
  if (is_retiring_.load(std::memory_order_acquire)) return std::unexpected(gone());
  std::shared_lock lock(mutex_);
  if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
  return bytes_locked();
}

Result<void> Placed::check(const BulkRequest& request) {
  const Access refusing = request.is_put ? Access::get_only : Access::put_only;
  if (parts_.access == refusing) {
    return std::unexpected(Error(Code::refused, "\"" + name_ + "\" may not be " + (request.is_put ? "put to" : "got")));
  }
  if (request.is_put) {
    const std::uint64_t room = file_ < 0 ? parts_.memory.size() : parts_.file.limit_bytes;
    if (request.bytes <= room && request.offset <= room - request.bytes) return {};
    return std::unexpected(Error(
        Code::too_large, "\"" + name_ + "\" has room for " + std::to_string(room) + " bytes, and the put goes from " +
                             std::to_string(request.offset) + " to " + std::to_string(request.offset + request.bytes)));
  }
  Result<std::uint64_t> there = bytes();
  if (!there) return std::unexpected(there.error());
  if (request.offset < *there || request.bytes == 0) return {};
  return std::unexpected(Error(Code::invalid_argument, "\"" + name_ + "\" has " + std::to_string(*there) +
                                                           " bytes, and the get is from " +
                                                           std::to_string(request.offset) + " on"));
}

Result<void> Placed::admit(const BulkRequest& request) {
  if (is_retiring_.load(std::memory_order_acquire)) return std::unexpected(gone());
  if (Result<void> checked = check(request); !checked) return checked;
  return parts_.guard ? parts_.guard(request) : Result<void>{};
}

Result<void> Placed::write_file(std::uint64_t offset, ByteSpan text) const {
  while (!text.empty()) {
    const ssize_t written = pwrite(file_, text.data(), text.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return std::unexpected(failed("write to"));
    offset += static_cast<std::uint64_t>(written);
    text = text.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> Placed::write(std::uint64_t offset, ByteSpan text) {
  if (is_retiring_.load(std::memory_order_acquire)) return std::unexpected(gone());
  if (file_ >= 0) {
    std::shared_lock lock(mutex_);
    if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
    if (Result<void> written = write_file(offset, text); !written) return written;
  }
  if (file_ < 0 || offset < parts_.cache.size()) {
    std::unique_lock lock(mutex_);
    if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
    if (file_ < 0) copy(text, parts_.memory.subspan(offset));
    if (offset < parts_.cache.size()) copy(text, parts_.cache.subspan(offset));
  }
  if (parts_.tee) {
    std::shared_lock lock(mutex_);
    if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
    const Inside inside(this);
    parts_.tee(offset, text);
  }
  return {};
}

Result<Payload> Placed::seal(std::uint64_t offset, Buffer room) {
  if (is_retiring_.load(std::memory_order_acquire)) return std::unexpected(gone());
  crypto::KeyBytes key = next_data_key();
  std::shared_lock lock(mutex_);
  if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
  if (file_ < 0) {
    const ByteSpan text = parts_.memory.subspan(offset, room.size());
    Result<Payload> sealed = buffer::seal_into(std::move(room), text, key, buffer::thread_key());
    crypto::wipe(key);
    return sealed;
  }
  MutableByteSpan left = room.span();
  while (!left.empty()) {
    const ssize_t read = pread(file_, left.data(), left.size(), static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return std::unexpected(failed("read"));
    if (read == 0) return std::unexpected(Error(Code::invalid_argument, "\"" + name_ + "\" was cut while it was read"));
    offset += static_cast<std::uint64_t>(read);
    left = left.subspan(static_cast<std::size_t>(read));
  }
  lock.unlock();
  Result<Payload> sealed = buffer::seal_in_place(std::move(room), key, buffer::thread_key());
  crypto::wipe(key);
  return sealed;
}

Result<void> Placed::sync() {
  if (file_ < 0) return {};
  if (is_retiring_.load(std::memory_order_acquire)) return std::unexpected(gone());
  std::shared_lock lock(mutex_);
  if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
  if (fdatasync(file_) != 0) return std::unexpected(failed("sync"));
  return {};
}

Result<void> Placed::retire() {
  if (inside_of_this_thread == this) {
    return std::unexpected(Error(Code::invalid_argument, "a placement's own tee cannot take it away"));
  }
  // Before the lock: whoever comes from now on does not even wait for it, so we are not kept out. Release and acquire
  // are the lock's for those inside; the early looks are hints.
  is_retiring_.store(true, std::memory_order_release);
  std::unique_lock lock(mutex_);
  return {};
}

// ---- Placements ----------------------------------------------------------------------------------------------------

Result<void> Placements::add(std::string_view name, Placement placement) {
  if (name.empty() || name.size() > kLargestNameBytes) {
    return std::unexpected(Error(Code::invalid_argument, "the name of a placement has between 1 and 255 bytes"));
  }
  auto placed = Placed::open(std::string(name), std::move(placement));
  if (!placed) return std::unexpected(placed.error());
  std::lock_guard lock(mutex_);
  if (by_name_.contains(name)) {
    return std::unexpected(Error(Code::invalid_argument, "there is a placement \"" + std::string(name) + "\" already"));
  }
  if (by_name_.size() >= kMaxPlacements) {
    return std::unexpected(Error(Code::overloaded, "a pool has at most 65536 placements"));
  }
  by_name_.emplace(std::string(name), *std::move(placed));
  return {};
}

Result<void> Placements::remove(std::string_view name) {
  Result<std::shared_ptr<Placed>> placed = find(name);
  if (!placed) return std::unexpected(Error(Code::invalid_argument, std::string(placed.error().message())));
  if (Result<void> retired = (*placed)->retire(); !retired) return retired;
  std::lock_guard lock(mutex_);
  // Another thread may have taken it away just now, and placed something else.
  const auto found = by_name_.find(name);
  if (found != by_name_.end() && found->second == *placed) by_name_.erase(found);
  return {};
}

Result<std::shared_ptr<Placed>> Placements::find(std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  return std::unexpected(Error(Code::unknown_method, "nothing is placed under the name \"" + std::string(name) + "\""));
}

void Placements::clear() {
  decltype(by_name_) all;
  {
    std::lock_guard lock(mutex_);
    all.swap(by_name_);
  }
  for (const auto& [name, placed] : all) static_cast<void>(placed->retire());
}

}  // namespace weir::pool
