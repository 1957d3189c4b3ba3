// AES-128-CMAC (RFC 4493, NIST SP 800-38B): a tag that needs no nonce, and a pseudorandom function of its message.
//
// For datagrams before there is a path. Against GCM's tag, which packets have: a key is set up in a third of the time,
// nobody has to count messages, and a few hundred bytes cost about the same.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "crypto/aead.h"
#include "crypto/block_key.h"

namespace weir::crypto {

// Owns its key, which is to be used for nothing else. One thread at a time. Allocates when it is made, then no more.
class Cmac {
 public:
  static constexpr std::size_t kMaxBytes = 256;  // of a message (a CHECK): more than any that is authenticated so
  using Tag = std::array<std::byte, kTagBytes>;
  static_assert(kTagBytes == kBlockBytes);

  Cmac(Aead& aead, std::span<const std::byte, kKeyBytes> key);
  ~Cmac();
  Cmac(const Cmac&) = delete;
  Cmac& operator=(const Cmac&) = delete;

  // Becomes another key, in the same memory.
  void rekey(std::span<const std::byte, kKeyBytes> key);

  Tag operator()(ByteSpan message) const;
  // The same for a message of whole blocks, at least one, which is lost: without a copy.
  Tag of_blocks(MutableByteSpan message) const;
  // In time that depends on the length only.
  [[nodiscard]] bool verify(ByteSpan message, const std::byte* tag) const;

 private:
  void make_subkeys();
  Tag chained(MutableByteSpan blocks, const std::array<std::byte, kBlockBytes>& subkey) const;

  std::unique_ptr<BlockKey> key_;
  std::array<std::byte, kBlockBytes> whole_{};   // goes into a last block that is full
  std::array<std::byte, kBlockBytes> padded_{};  // and into one that had to be filled up
};

}  // namespace weir::crypto
