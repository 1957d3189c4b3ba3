// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"

namespace weir::wire {

using Bytes = std::vector<std::byte>;

// The bytes end where their allocation ends, so that a sanitizer sees a read one byte too far.
class ExactCopy {
 public:
  explicit ExactCopy(ByteSpan bytes) : bytes_(new std::byte[bytes.size()]), size_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), bytes_.get());
  }
  ByteSpan span() const { return {bytes_.get(), size_}; }
  const std::byte* begin() const { return bytes_.get(); }
  const std::byte* end() const { return bytes_.get() + size_; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

template <class Encode>
Bytes encoded(Encode&& encode_to) {
  Bytes out(70'000, std::byte{0xee});
  out.resize(static_cast<std::size_t>(encode_to(out.data()) - out.data()));
  return out;
}

// Decodes every proper beginning of `bytes`, each in memory of its own.
inline void expect_every_truncation_rejected(
    const Bytes& bytes, const std::function<const std::byte*(const std::byte*, const std::byte*)>& decode_from) {
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    const ExactCopy cut(ByteSpan(bytes).first(size));
    EXPECT_EQ(decode_from(cut.begin(), cut.end()), nullptr) << size << " of " << bytes.size() << " bytes";
  }
  const ExactCopy whole(bytes);
  EXPECT_EQ(decode_from(whole.begin(), whole.end()), whole.end());
}

}  // namespace weir::wire
