// What `weir cp` and `weir serve-files` say to each other: fields one after the other, little endian, in a request's or
// reply's body. A block's bytes come first, and the header says how many they are; so they are read and written in
// place.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/weir/files.h"
#include "weir/method.h"

namespace weir::command {

inline constexpr Method kLookMethod{"files.look"};
inline constexpr Method kListMethod{"files.list"};
inline constexpr Method kReadMethod{"files.read"};
inline constexpr Method kSumsMethod{"files.sums"};
inline constexpr Method kMakeDirectoryMethod{"files.make-directory"};
inline constexpr Method kBeginMethod{"files.begin"};
inline constexpr Method kWriteMethod{"files.write"};
inline constexpr Method kFinishMethod{"files.finish"};

class FieldWriter {
 public:
  FieldWriter() = default;
  explicit FieldWriter(std::vector<std::byte> begun) : bytes_(std::move(begun)) {}

  FieldWriter& add(std::uint64_t value);
  FieldWriter& add(std::string_view text);  // at most 65,535 bytes
  FieldWriter& add(const FileInfo& info);
  FieldWriter& add(const FileVersion& file) { return add(file.path).add(file.info); }
  FieldWriter& add(const Digest& digest);
  Bytes bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Every field may be missing or wrong: what it gives then is empty, and ok() is false from there on.
class FieldReader {
 public:
  explicit FieldReader(Bytes bytes) : rest_(bytes) {}

  std::uint64_t number();
  std::string text();
  FileInfo info();
  FileVersion file() {
    std::string path = text();
    return {std::move(path), info()};
  }
  Digest digest();
  bool ok() const { return ok_; }
  bool is_done() const { return ok_ && rest_.empty(); }

 private:
  Bytes take(std::size_t bytes);

  Bytes rest_;
  bool ok_ = true;
};

// The parts of a request with a block; empty if it makes no sense.
struct BlockMessage {
  Bytes block;
  Bytes fields;
};
std::optional<BlockMessage> take_apart(Bytes header, Bytes body);

}  // namespace weir::command
