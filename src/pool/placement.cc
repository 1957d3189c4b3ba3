#include "pool/placement.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

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

// A tee or guard runs in here.
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

// Puts read, too: what they replace.
int open_file(const Placement::Parts& parts) {
  const int access = parts.file.access == Access::get_only ? O_RDONLY : O_RDWR;
  return ::open(parts.path.c_str(), access | O_CLOEXEC | (parts.file.create ? O_CREAT : 0), 0644);
}

// Both go on after a short one. How many bytes they did: fewer than asked for is the end, or errno.
std::size_t read_all(int file, MutableByteSpan to, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t read = pread(file, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (read < 0 && errno == EINTR) continue;
    if (read == 0) errno = 0;
    if (read <= 0) break;
    done += static_cast<std::size_t>(read);
  }
  return done;
}

std::size_t write_all(int file, ByteSpan text, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = pwrite(file, text.data() + done, text.size() - done, static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  return done;
}

// What a record replaces, until it is written as a whole. One per thread of the executor.
thread_local std::vector<std::byte> replaced_text;

}  // namespace

// ---- Placed --------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<Placed>> Placed::open(std::string name, Placement placement) {
  Placement::Parts parts = std::move(placement).release();
  int file = -1;
  if (!parts.path.empty()) {
    file = open_file(parts);
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
  // The asker adds from where on and how much it wanted in all: this may be one part of many.
  return std::unexpected(Error(Code::invalid_argument, "the get goes beyond the end: \"" + name_ + "\" has " +
                                                           std::to_string(*there) + " bytes"));
}

Result<void> Placed::admit(const BulkRequest& request) {
  if (is_retiring_.load(std::memory_order_acquire)) return std::unexpected(gone());
  if (Result<void> checked = check(request); !checked || !parts_.guard) return checked;
  std::shared_lock visit(visit_mutex_);
  if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
  const Inside inside(this);
  return parts_.guard(request);
}

// A disk that is full takes the beginning of a record and not the rest; so what was there is read first.
Result<void> Placed::write_file(std::uint64_t offset, ByteSpan text) const {
  const Result<std::uint64_t> end = bytes_locked();
  if (!end) return std::unexpected(end.error());
  replaced_text.resize(std::min<std::uint64_t>(text.size(), *end - std::min(*end, offset)));
  const std::size_t replaced = read_all(file_, replaced_text, offset);
  if (replaced != replaced_text.size() && errno != 0) return std::unexpected(failed("read"));
  const std::size_t written = write_all(file_, text, offset);
  if (written == text.size()) return {};
  Error error = failed("write to");
  const ByteSpan lost = ByteSpan{replaced_text}.first(std::min<std::size_t>(written, replaced));
  bool is_restored = write_all(file_, lost, offset) == lost.size();
  if (written > replaced) is_restored = ftruncate(file_, static_cast<off_t>(*end)) == 0 && is_restored;
  if (is_restored) return std::unexpected(std::move(error));
  return std::unexpected(
      Error(error.code(), std::string(error.message()) + "; nor can it be made what it was: " + words_of_errno()));
}

Result<void> Placed::write(std::uint64_t offset, ByteSpan text) {
  if (is_retiring_.load(std::memory_order_acquire)) return std::unexpected(gone());
  {
    std::unique_lock lock(mutex_);
    if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
    if (file_ < 0) {
      copy(text, parts_.memory.subspan(offset));
    } else if (Result<void> written = write_file(offset, text); !written) {
      return written;
    }
    if (offset < parts_.cache.size()) copy(text, parts_.cache.subspan(offset));
  }
  if (parts_.tee) {
    std::shared_lock visit(visit_mutex_);
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
  if (read_all(file_, room.span(), offset) != room.size()) {
    if (errno != 0) return std::unexpected(failed("read"));
    return std::unexpected(Error(Code::invalid_argument, "\"" + name_ + "\" was cut while it was read"));
  }
  lock.unlock();
  Result<Payload> sealed = buffer::seal_in_place(std::move(room), key, buffer::thread_key());
  crypto::wipe(key);
  return sealed;
}

Result<void> Placed::sync() {
  if (file_ < 0) return {};
  if (is_retiring_.load(std::memory_order_acquire)) return std::unexpected(gone());
  std::shared_lock visit(visit_mutex_);
  if (is_retiring_.load(std::memory_order_relaxed)) return std::unexpected(gone());
  if (fdatasync(file_) != 0) return std::unexpected(failed("sync"));
  return {};
}

Result<void> Placed::retire() {
  if (inside_of_this_thread == this) {
    return std::unexpected(Error(Code::invalid_argument, "a placement's own tee or guard cannot take it away"));
  }
  // Before the lock: whoever comes from now on does not even wait for it, so we are not kept out. Release and acquire
  // are the lock's for those inside; the early looks are hints.
  is_retiring_.store(true, std::memory_order_release);
  const std::unique_lock visit(visit_mutex_);
  const std::unique_lock lock(mutex_);
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

void Placements::clear(Visitors visitors) {
  decltype(by_name_) all;
  {
    std::lock_guard lock(mutex_);
    all.swap(by_name_);
  }
  for (const auto& [name, placed] : all) {
    if (visitors == Visitors::may_stay) {
      placed->retire_soon();
    } else {
      static_cast<void>(placed->retire());
    }
  }
}

}  // namespace weir::pool
