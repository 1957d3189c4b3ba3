#include "apps/weir/file_message.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace weir::command {

namespace {
constexpr std::size_t kNumberBytes = 8;
constexpr std::size_t kLengthBytes = 2;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 62;  // what an offset can say, with room to add
}  // namespace

FieldWriter& FieldWriter::add(std::uint64_t value) {
  bytes_.resize(bytes_.size() + kNumberBytes);
  store(bytes_.data() + bytes_.size() - kNumberBytes, value);
  return *this;
}

FieldWriter& FieldWriter::add(std::string_view text) {
  WEIR_CHECK(text.size() <= 0xffff, "a text field has at most 65,535 bytes");
  bytes_.resize(bytes_.size() + kLengthBytes);
  store(bytes_.data() + bytes_.size() - kLengthBytes, static_cast<std::uint16_t>(text.size()));
  Bytes bytes = as_bytes(text);
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

FieldWriter& FieldWriter::add(const FileInfo& info) {
  return add(static_cast<std::uint64_t>(info.kind))
      .add(std::uint64_t{info.mode})
      .add(info.bytes)
      .add(static_cast<std::uint64_t>(info.modified_ns));
}

FieldWriter& FieldWriter::add(const Digest& digest) {
  bytes_.insert(bytes_.end(), digest.begin(), digest.end());
  return *this;
}

Bytes FieldReader::take(std::size_t bytes) {
  if (!ok_ || bytes > rest_.size()) {
    ok_ = false;
    return {};
  }
  Bytes taken = rest_.first(bytes);
  rest_ = rest_.subspan(bytes);
  return taken;
}

std::uint64_t FieldReader::number() {
  Bytes bytes = take(kNumberBytes);
  return ok_ ? load<std::uint64_t>(bytes.data()) : 0;
}

std::string FieldReader::text() {
  Bytes length = take(kLengthBytes);
  if (!ok_) return {};
  Bytes bytes = take(load<std::uint16_t>(length.data()));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

FileInfo FieldReader::info() {
  FileInfo info;
  std::uint64_t kind = number();
  std::uint64_t mode = number();
  info.bytes = number();
  info.modified_ns = static_cast<std::int64_t>(number());
  if (kind > static_cast<std::uint64_t>(FileKind::other) || mode > 0777 || info.bytes > kMaxFileBytes) ok_ = false;
  if (!ok_) return {};
  info.kind = static_cast<FileKind>(kind);
  info.mode = static_cast<std::uint32_t>(mode);
  return info;
}

Digest FieldReader::digest() {
  Digest digest{};
  Bytes bytes = take(digest.size());
  std::ranges::copy(bytes, digest.begin());
  return digest;
}

std::optional<BlockMessage> take_apart(Bytes header, Bytes body) {
  FieldReader reader(header);
  std::uint64_t block_bytes = reader.number();
  if (!reader.is_done() || block_bytes > kBlockBytes || block_bytes > body.size()) return std::nullopt;
  return BlockMessage{.block = body.first(block_bytes), .fields = body.subspan(block_bytes)};
}

}  // namespace weir::command
