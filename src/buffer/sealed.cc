#include "buffer/sealed.h"

#include <algorithm>

#include "base/check.h"
#include "buffer/holds.h"

namespace weir::buffer {

Sealed::Sealed() : detail::Pin{} {}
Sealed::~Sealed() = default;

std::uint32_t Sealed::piece_at(std::uint64_t offset) const {
  WEIR_CHECK(offset < bytes, "a slice begins inside its payload");
  if (parts.size() == 1) [[likely]]
    return 0;
  const auto after = std::upper_bound(parts.begin(), parts.end(), offset,
                                      [](std::uint64_t wanted, const Part& part) { return wanted < part.begin; });
  return static_cast<std::uint32_t>(after - parts.begin() - 1);
}

ByteSpan Sealed::at(std::uint64_t offset) const {
  const Part& part = part_at(offset);
  const std::uint64_t in_part = offset - part.begin;
  WEIR_CHECK(in_part < part.bytes.size(), "somebody holds the piece of a payload that is being read");
  const std::uint64_t in_record = offset % record_bytes;
  return part.bytes.subspan(in_part, std::min<std::uint64_t>(part.bytes.size() - in_part, record_bytes - in_record));
}

}  // namespace weir::buffer
