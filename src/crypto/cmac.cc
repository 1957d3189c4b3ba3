#include "crypto/cmac.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "crypto/aead_backend.h"

namespace weir::crypto {

namespace {

using Block = std::array<std::byte, kBlockBytes>;

// Twice the block in GF(2^128), whose bytes stand in big-endian order. No branch depends on its bits.
Block doubled(const Block& block) {
  const std::uint64_t high = std::byteswap(load<std::uint64_t>(block.data()));
  const std::uint64_t low = std::byteswap(load<std::uint64_t>(block.data() + 8));
  const std::uint64_t carried = 0x87 & (0 - (high >> 63));
  Block out;
  store<std::uint64_t>(out.data(), std::byteswap(high << 1 | low >> 63));
  store<std::uint64_t>(out.data() + 8, std::byteswap((low << 1) ^ carried));
  return out;
}

void mix(std::byte* into, const Block& block) {
  store<std::uint64_t>(into, load<std::uint64_t>(into) ^ load<std::uint64_t>(block.data()));
  store<std::uint64_t>(into + 8, load<std::uint64_t>(into + 8) ^ load<std::uint64_t>(block.data() + 8));
}

}  // namespace

Cmac::Cmac(Aead& aead, std::span<const std::byte, kKeyBytes> key) : key_(aead.make_block_key(key)) { make_subkeys(); }

Cmac::~Cmac() {
  wipe(whole_);
  wipe(padded_);
}

void Cmac::rekey(std::span<const std::byte, kKeyBytes> key) {
  key_->rekey(key);
  make_subkeys();
}

void Cmac::make_subkeys() {
  whole_ = {};
  key_->chain(whole_);
  whole_ = doubled(whole_);
  padded_ = doubled(whole_);
}

Cmac::Tag Cmac::operator()(ByteSpan message) const {
  WEIR_CHECK(message.size() <= kMaxBytes, "a longer message is sealed");
  std::array<std::byte, kMaxBytes> blocks;
  const std::size_t bytes = message.size();
  // Filled up with one bit and zeros, if it is not a full block.
  const std::size_t last = bytes == 0 ? 0 : (bytes - 1) / kBlockBytes * kBlockBytes;
  const bool is_whole = bytes == last + kBlockBytes;
  if (!is_whole) {
    std::memset(blocks.data() + last, 0, kBlockBytes);
    blocks[bytes] = std::byte{0x80};
  }
  if (bytes != 0) std::memcpy(blocks.data(), message.data(), bytes);
  return chained({blocks.data(), last + kBlockBytes}, is_whole ? whole_ : padded_);
}

Cmac::Tag Cmac::of_blocks(MutableByteSpan message) const { return chained(message, whole_); }

Cmac::Tag Cmac::chained(MutableByteSpan blocks, const std::array<std::byte, kBlockBytes>& subkey) const {
  std::byte* const last = blocks.data() + blocks.size() - kBlockBytes;
  mix(last, subkey);
  key_->chain(blocks);
  Tag tag;
  std::memcpy(tag.data(), last, tag.size());
  return tag;
}

bool Cmac::verify(ByteSpan message, const std::byte* tag) const {
  Tag expected = (*this)(message);
  const bool is_right = tags_equal(expected.data(), tag);
  wipe(expected);  // whoever reads it could say what it says
  return is_right;
}

}  // namespace weir::crypto
