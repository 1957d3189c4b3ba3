#include "buffer/file_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace weir::buffer {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

std::unexpected<Error> refused(const std::string& directory, const char* what, int error) {
  return std::unexpected(
      Error(Code::system, "buffers in files under " + directory + ": " + what + ": " + std::strerror(error)));
}

int open_nameless(const std::string& directory) {
#ifdef O_TMPFILE
  const int opened = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (opened >= 0) return opened;
#endif
  // Not every file system has such files: one with a name, which it loses at once.
  std::string name = directory + "/weir-buffers-XXXXXX";
  const int named = ::mkstemp(name.data());
  if (named < 0) return -1;
  ::unlink(name.c_str());
  ::fcntl(named, F_SETFD, FD_CLOEXEC);
  return named;
}

// 0, or the error.
int reserve(int file, std::size_t bytes) {
#ifdef __APPLE__
  fstore_t wish{.fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_length = static_cast<off_t>(bytes)};
  if (::fcntl(file, F_PREALLOCATE, &wish) != 0) return errno;
  return ::ftruncate(file, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
#else
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) return errno;
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  return error;
#endif
}

}  // namespace

FileSource::FileSource(std::string directory) : directory_(std::move(directory)) {}

Result<Extent> FileSource::map(std::size_t bytes, int) {
  const Descriptor file{open_nameless(directory_)};
  if (file.number() < 0) return refused(directory_, "no file can be made", errno);
  if (const int error = reserve(file.number(), bytes); error != 0) {
    return refused(directory_, "no room for a larger file", error);
  }
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (data == MAP_FAILED) return refused(directory_, "a file cannot be mapped", errno);
  return Extent{.data = static_cast<std::byte*>(data), .bytes = bytes};  // the mapping keeps the file
}

void FileSource::unmap(const Extent& extent) noexcept { ::munmap(extent.data, extent.bytes); }

}  // namespace weir::buffer
