// Body: bytes that travel with a call, owned. Up to 256 bytes live inside the object itself; more are kept in
// memory that is shared by reference count (for a received body, the very buffer it arrived in).
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "weir/pin.h"

namespace weir {

using Bytes = std::span<const std::byte>;

inline Bytes as_bytes(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

class Body {
 public:
  static constexpr std::size_t kInlineBytes = 256;

  Body() noexcept {}  // NOLINT: inline_ stays uninitialised on purpose
  // Copies: into the object if it fits, otherwise into one heap block.
  explicit Body(Bytes bytes) {
    if (bytes.size() <= kInlineBytes) {
      size_ = bytes.size();
      if (size_ != 0) std::memcpy(inline_, bytes.data(), size_);
    } else {
      copy_to_heap(bytes);
    }
  }
  // Takes over one reference on `pin`, which keeps `bytes` alive.
  Body(Bytes bytes, detail::Pin* pin) noexcept : data_(bytes.data()), size_(bytes.size()), pin_(pin) {}

  Body(Body&& other) noexcept { take(other); }
  Body& operator=(Body&& other) noexcept {
    if (this != &other) {
      drop();
      take(other);
    }
    return *this;
  }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  ~Body() { drop(); }

  Bytes bytes() const { return {pin_ ? data_ : inline_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(pin_ ? data_ : inline_), size_}; }
  std::size_t size() const { return size_; }

  // For the library: what keeps the bytes alive; null if they are inside the object.
  detail::Pin* pin() const { return pin_; }

 private:
  void take(Body& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    pin_ = std::exchange(other.pin_, nullptr);
    if (pin_ != nullptr) {
      data_ = other.data_;
    } else if (size_ != 0) {
      std::memcpy(inline_, other.inline_, size_);
    }
  }
  void drop() noexcept {
    if (pin_ != nullptr) detail::unpin(std::exchange(pin_, nullptr));
    size_ = 0;
  }
  void copy_to_heap(Bytes bytes);

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  detail::Pin* pin_ = nullptr;
  alignas(8) std::byte inline_[kInlineBytes];
};

}  // namespace weir
