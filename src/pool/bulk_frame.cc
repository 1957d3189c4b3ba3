#include "pool/bulk_frame.h"

#include "weir/body.h"

namespace weir::pool {
namespace {

constexpr std::uint8_t kIsPut = 1, kSync = 2;
constexpr std::uint64_t kEnd = std::uint64_t{1} << 62;  // of offsets and sizes, so that no sum of two overflows

std::byte* writable(std::string& text) { return reinterpret_cast<std::byte*>(text.data()); }

std::string_view text_of(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

std::string encode(const BulkFrame& frame) {
  std::string bytes(BulkFrame::kFixedBytes, '\0');
  std::byte* const to = writable(bytes);
  store<std::uint8_t>(to, static_cast<std::uint8_t>((frame.is_put ? kIsPut : 0) | (frame.sync ? kSync : 0)));
  store<std::uint16_t>(to + 2, static_cast<std::uint16_t>(frame.name.size()));
  store<std::uint64_t>(to + 8, frame.offset);
  store<std::uint64_t>(to + 16, frame.bytes);
  bytes += frame.name;
  bytes += text_of(frame.header);
  return bytes;
}

std::optional<BulkFrame> decode_bulk(ByteSpan bytes) {
  if (bytes.size() < BulkFrame::kFixedBytes) return std::nullopt;
  const std::uint8_t flags = load<std::uint8_t>(bytes.data());
  const std::size_t name_bytes = load<std::uint16_t>(bytes.data() + 2);
  if ((flags & ~(kIsPut | kSync)) != 0 || bytes[1] != std::byte{0} || load<std::uint32_t>(bytes.data() + 4) != 0) {
    return std::nullopt;
  }
  BulkFrame frame{.is_put = (flags & kIsPut) != 0,
                  .sync = (flags & kSync) != 0,
                  .offset = load<std::uint64_t>(bytes.data() + 8),
                  .bytes = load<std::uint64_t>(bytes.data() + 16)};
  if (frame.offset > kEnd || frame.bytes > kEnd) return std::nullopt;
  const ByteSpan rest = bytes.subspan(BulkFrame::kFixedBytes);
  if (name_bytes == 0 || name_bytes > kLargestNameBytes || rest.size() < name_bytes) return std::nullopt;
  frame.name = text_of(rest.first(name_bytes));
  frame.header = rest.subspan(name_bytes);
  if (frame.header.size() > kLargestBulkHeaderBytes) return std::nullopt;
  return frame;
}

std::string encode(const AskAnswer& answer) {
  std::string bytes(AskAnswer::kBytes, '\0');
  store<std::uint64_t>(writable(bytes), answer.placement_bytes);
  store<std::uint64_t>(writable(bytes) + 8, answer.largest_part_bytes);
  return bytes;
}

std::optional<AskAnswer> decode_ask_answer(ByteSpan bytes) {
  if (bytes.size() != AskAnswer::kBytes) return std::nullopt;
  const AskAnswer answer{.placement_bytes = load<std::uint64_t>(bytes.data()),
                         .largest_part_bytes = load<std::uint64_t>(bytes.data() + 8)};
  if (answer.placement_bytes > kEnd) return std::nullopt;
  return answer;
}

std::string encode(const PutAnswer& answer) {
  std::string bytes(PutAnswer::kFixedBytes, '\0');
  store<std::uint8_t>(writable(bytes), static_cast<std::uint8_t>(answer.code));
  store<std::uint64_t>(writable(bytes) + 8, answer.written_bytes);
  return bytes += answer.sentence;
}

std::optional<PutAnswer> decode_put_answer(ByteSpan bytes) {
  if (bytes.size() < PutAnswer::kFixedBytes) return std::nullopt;
  const std::uint8_t code = load<std::uint8_t>(bytes.data());
  if (code > static_cast<std::uint8_t>(Code::system)) return std::nullopt;
  return PutAnswer{.code = static_cast<Code>(code),
                   .written_bytes = load<std::uint64_t>(bytes.data() + 8),
                   .sentence = text_of(bytes.subspan(PutAnswer::kFixedBytes))};
}

}  // namespace weir::pool
