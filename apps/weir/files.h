// Files: a directory tree that `weir cp` reads from or writes to, here (LocalFiles) or at a peer (RemoteFiles).
//
// A file is copied in blocks. While it grows it has another name in the same directory, made of what is copied there;
// finish() gives it its own one, so that nobody sees half a file. A copy that was interrupted finds that part again,
// compares the digests of its blocks and sends only what is missing or different.
//
// Paths are relative, with slashes, and come from peers: each component is checked (path.h) and opened without
// following links, so that nothing outside of the root can be named.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weir/body.h"
#include "weir/error.h"

namespace weir::command {

inline constexpr std::uint64_t kBlockBytes = 1 << 20;
inline constexpr std::size_t kSumsPerCall = 16;      // digests asked for at once: 16 MiB to read
inline constexpr std::size_t kEntriesPerCall = 512;  // names listed at once

enum class FileKind : std::uint8_t { absent, file, directory, other };

struct FileInfo {
  FileKind kind = FileKind::absent;
  std::uint32_t mode = 0;  // the nine permission bits
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const FileInfo&) const = default;
};

struct FileEntry {
  std::string name;
  FileInfo info;
};

struct Listing {
  std::vector<FileEntry> entries;  // by name
  bool has_more = false;
};

using Digest = std::array<std::byte, 32>;  // SHA-256
Digest digest_of(Bytes bytes);

// The file itself, or the part of it that is being copied.
enum class Stage : std::uint8_t { whole, part };

// A file as one copy knows it: if it changed meanwhile, it is another one.
struct FileVersion {
  std::string path;
  FileInfo info;
};

// Which blocks: the last one of a file may be shorter.
struct BlockRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

inline std::uint64_t blocks_of(std::uint64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }
inline std::size_t block_bytes(std::uint64_t file_bytes, std::uint64_t block) {
  std::uint64_t left = file_bytes - block * kBlockBytes;
  return static_cast<std::size_t>(left < kBlockBytes ? left : kBlockBytes);
}

// Any thread may call; several at once. Errors about a file have the code `application` or `refused` and a sentence;
// other codes mean that the peer cannot be talked to.
class Files {
 public:
  virtual ~Files() = default;

  virtual Result<FileInfo> look(const std::string& path) = 0;  // absent is not an error
  virtual Result<Listing> list(const std::string& path, const std::string& after) = 0;
  virtual Result<void> read(const FileVersion& file, std::uint64_t block, std::span<std::byte> into) = 0;
  // Of blocks that are there completely; fewer than asked for if the file ends before.
  virtual Result<std::vector<Digest>> sums(const FileVersion& file, Stage stage, BlockRange range) = 0;

  virtual Result<void> make_directory(const std::string& path, std::uint32_t mode) = 0;
  // How many bytes of the part are there from an earlier attempt; some of them may be wrong.
  virtual Result<std::uint64_t> begin(const FileVersion& file) = 0;
  virtual Result<void> write(const FileVersion& file, std::uint64_t block, Bytes bytes) = 0;
  virtual Result<void> finish(const FileVersion& file) = 0;
};

}  // namespace weir::command
