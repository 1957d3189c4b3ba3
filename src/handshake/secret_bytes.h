// SecretBytes: a vector that wipes memory before it gives it back, also when it grows.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "crypto/secret.h"

namespace weir::handshake {

template <class T>
struct WipingAllocator {
  using value_type = T;

  WipingAllocator() = default;
  template <class Other>
  WipingAllocator(const WipingAllocator<Other>&) {}

  T* allocate(std::size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* at, std::size_t count) {
    crypto::wipe({reinterpret_cast<std::byte*>(at), count * sizeof(T)});
    std::allocator<T>().deallocate(at, count);
  }
  bool operator==(const WipingAllocator&) const = default;
};

using SecretBytes = std::vector<std::byte, WipingAllocator<std::byte>>;

// Wipes what it was made for when it goes.
class WipeAtEnd {
 public:
  explicit WipeAtEnd(MutableByteSpan bytes) : bytes_(bytes) {}
  WipeAtEnd(const WipeAtEnd&) = delete;
  WipeAtEnd& operator=(const WipeAtEnd&) = delete;
  ~WipeAtEnd() { crypto::wipe(bytes_); }

 private:
  MutableByteSpan bytes_;
};

}  // namespace weir::handshake
