// Reads arbitrary bytes as what a peer of `weir cp` or `weir serve-files` says; what reads writes to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "apps/weir/file_message.h"
#include "base/check.h"

namespace weir::command {
namespace {

bool is_same(Bytes a, Bytes b) { return std::ranges::equal(a, b); }

// Two bits of `shape` say what comes next, four times.
void read_fields(std::uint8_t shape, Bytes bytes) {
  FieldReader reader(bytes);
  FieldWriter again;
  for (int i = 0; i < 4; ++i, shape >>= 2) {
    switch (shape & 3) {
      case 0:
        again.add(reader.number());
        break;
      case 1:
        again.add(reader.text());
        break;
      case 2:
        again.add(reader.file());
        break;
      default:
        again.add(reader.digest());
        break;
    }
  }
  if (!reader.ok()) return;
  const Bytes written = again.bytes();
  WEIR_CHECK(written.size() <= bytes.size() && is_same(written, bytes.first(written.size())),
             "fields write to other bytes than they were read from");
  WEIR_CHECK(reader.is_done() == (written.size() == bytes.size()), "bytes are left, or none");
}

}  // namespace
}  // namespace weir::command

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weir::command;
  if (size == 0) return 0;
  const weir::Bytes bytes = weir::Bytes{reinterpret_cast<const std::byte*>(data), size}.subspan(1);
  read_fields(data[0], bytes);
  const std::size_t header_bytes = std::min<std::size_t>(bytes.size(), data[0] & 15);
  const weir::Bytes body = bytes.subspan(header_bytes);
  if (const auto apart = take_apart(bytes.first(header_bytes), body)) {
    WEIR_CHECK(header_bytes == 8 && apart->block.size() <= kBlockBytes, "a block that is none");
    WEIR_CHECK(apart->block.data() == body.data() && apart->block.size() + apart->fields.size() == body.size(),
               "parts that are not the whole");
  }
  return 0;
}
