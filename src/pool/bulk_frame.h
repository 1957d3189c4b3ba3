// The headers of the built-in bulk methods. They are ordinary requests and replies; these are the bytes in them.
//
// A request of any of the methods: flags u8, zero u8, length of the name u16, zero u32, offset u64, bytes u64, the
// name, the application's header. The answer to `ask`: the placement's bytes u64, largest part u64. The answer to
// `put`: code u8 (0: all is well), seven zero bytes, bytes written u64, a sentence. A part of a `get` has the
// placement's bytes, u64, as its header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "weir/error.h"
#include "weir/method.h"

namespace weir::pool {

inline constexpr Method kAskMethod{"weir.bulk.ask"};  // whether a put or get would be taken
inline constexpr Method kPutMethod{"weir.bulk.put"};  // one part
inline constexpr Method kGetMethod{"weir.bulk.get"};  // one part

inline constexpr std::size_t kGetHeaderBytes = 8;  // of the answer with a part of a get
inline constexpr std::size_t kLargestNameBytes = 255;
inline constexpr std::size_t kLargestBulkHeaderBytes = 512;

struct BulkFrame {
  static constexpr std::size_t kFixedBytes = 24;

  bool is_put = false;
  bool sync = false;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string_view name;
  ByteSpan header;
};

std::string encode(const BulkFrame& frame);
// Views into `bytes`. Nothing: a peer sent nonsense.
std::optional<BulkFrame> decode_bulk(ByteSpan bytes);

struct AskAnswer {
  static constexpr std::size_t kBytes = 16;
  std::uint64_t placement_bytes = 0;
  std::uint64_t largest_part_bytes = 0;
};
std::string encode(const AskAnswer& answer);
std::optional<AskAnswer> decode_ask_answer(ByteSpan bytes);

struct PutAnswer {
  static constexpr std::size_t kFixedBytes = 16;
  Code code{};
  std::uint64_t written_bytes = 0;
  std::string_view sentence;
};
std::string encode(const PutAnswer& answer);
std::optional<PutAnswer> decode_put_answer(ByteSpan bytes);

}  // namespace weir::pool
