// Decodes arbitrary bytes as the headers of bulk requests and their answers; what decodes encodes to the same bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "pool/bulk_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weir::pool;
  const weir::ByteSpan bytes{reinterpret_cast<const std::byte*>(data), size};
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  if (const auto frame = decode_bulk(bytes)) {
    WEIR_CHECK(encode(*frame) == text, "a bulk request encodes to other bytes than it was decoded from");
    WEIR_CHECK(frame->offset + frame->bytes >= frame->offset, "a range that overflows");
  }
  if (const auto answer = decode_ask_answer(bytes)) {
    WEIR_CHECK(encode(*answer) == text, "an answer encodes to other bytes than it was decoded from");
  }
  if (const auto answer = decode_put_answer(bytes)) {
    const std::string again = encode(*answer);
    const auto decoded = decode_put_answer({reinterpret_cast<const std::byte*>(again.data()), again.size()});
    WEIR_CHECK(decoded && decoded->code == answer->code && decoded->written_bytes == answer->written_bytes &&
                   decoded->sentence == answer->sentence,
               "an answer decodes to something else the second time");
  }
  return 0;
}
