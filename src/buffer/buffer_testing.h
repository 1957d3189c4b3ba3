// What the tests of this folder share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "buffer/landing.h"
#include "buffer/sealed.h"
#include "crypto/secret.h"

namespace weir::buffer {

using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(Random& random, std::size_t size) {
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

inline crypto::KeyBytes random_key(Random& random) {
  crypto::KeyBytes key;
  for (auto& byte : key) byte = static_cast<std::byte>(random.next());
  return key;
}

inline bool all_zero(ByteSpan bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

// What the engine does with a payload over the network: its records from `first` on arrive in a landing of their own.
inline Landing* land(Memory& memory, const Sealed& sealed, std::uint64_t first = 0,
                     std::uint64_t records = ~std::uint64_t{0}) {
  const std::uint64_t begin = first * sealed.record_bytes;
  const std::uint64_t most = std::min(records, sealed.records() - first);
  const std::uint64_t bytes = std::min(sealed.bytes - begin, most * sealed.record_bytes);
  Landing* const landing = make_landing(memory, bytes, sealed.record_bytes);
  for (std::uint64_t at = 0; at < bytes;) {
    const ByteSpan slice = sealed.at(begin + at);
    std::memcpy(landing->body + at, slice.data(), slice.size());
    at += slice.size();
  }
  if (bytes != 0) std::memcpy(landing->tags, sealed.tag_of(first), records_of(bytes, sealed.record_bytes) * 16);
  landing->bytes = bytes;
  landing->first_record = first;
  landing->payload_bytes = sealed.bytes;
  landing->key = sealed.key;
  return landing;
}

}  // namespace weir::buffer
