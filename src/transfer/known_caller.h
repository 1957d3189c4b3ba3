// KnownCaller: what is known of whoever made a path to here, for as long as the path or a request of it is there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/caller.h"

namespace weir::transfer {

// What a certificate proves, shared by all paths that were made with it.
using ProvenNames = std::shared_ptr<const std::vector<std::string>>;

// Immutable but for the count, which is the engine's thread's alone. Other threads may read it while they owe the
// answer to a request, because that holds it. One allocation: its text lies behind it.
class KnownCaller {
 public:
  // `claimed`: what it calls itself, which counts only where nothing is proven.
  // `member`: tells whose quota its requests count against (engine/members.h).
  static KnownCaller* make(std::string_view address, std::string_view claimed, ProvenNames proven,
                           std::uint64_t member = 0) {
    if (proven != nullptr) claimed = {};
    void* const memory = ::operator new(sizeof(KnownCaller) + address.size() + claimed.size());
    auto* const made = ::new (memory) KnownCaller(std::move(proven), address.size(), claimed.size(), member);
    std::copy(claimed.begin(), claimed.end(), std::copy(address.begin(), address.end(), made->text()));
    return made;
  }

  std::uint64_t member() const { return member_; }
  Caller shown() const {
    const std::string_view all(text(), std::size_t{address_bytes_} + claimed_bytes_);
    const std::string_view address = all.substr(0, address_bytes_);
    if (proven_ == nullptr) return {.name = all.substr(address_bytes_), .address = address};
    return {.name = proven_->empty() ? std::string_view{} : std::string_view(proven_->front()),
            .names = *proven_,
            .address = address};
  }

 private:
  friend class CallerReference;
  KnownCaller(ProvenNames proven, std::size_t address_bytes, std::size_t claimed_bytes, std::uint64_t member)
      : proven_(std::move(proven)),
        member_(member),
        address_bytes_(static_cast<std::uint16_t>(address_bytes)),
        claimed_bytes_(static_cast<std::uint16_t>(claimed_bytes)) {}
  ~KnownCaller() = default;
  static void destroy(KnownCaller* caller) {
    caller->~KnownCaller();
    ::operator delete(caller);
  }
  char* text() { return reinterpret_cast<char*>(this + 1); }
  const char* text() const { return reinterpret_cast<const char*>(this + 1); }

  const ProvenNames proven_;
  const std::uint64_t member_;
  const std::uint16_t address_bytes_;
  const std::uint16_t claimed_bytes_;  // at most a name of the handshake's
  std::uint32_t references_ = 0;
};

// Keeps one. As there is never a second path with the same one, it also tells paths apart, for as long as it is held.
class CallerReference {
 public:
  CallerReference() = default;
  explicit CallerReference(KnownCaller* caller) : caller_(caller) { ++caller_->references_; }
  CallerReference(const CallerReference& other) : caller_(other.caller_) {
    if (caller_ != nullptr) ++caller_->references_;
  }
  CallerReference(CallerReference&& other) noexcept : caller_(std::exchange(other.caller_, nullptr)) {}
  CallerReference& operator=(CallerReference other) noexcept {
    std::swap(caller_, other.caller_);
    return *this;
  }
  ~CallerReference() {
    if (caller_ != nullptr && --caller_->references_ == 0) KnownCaller::destroy(caller_);
  }

  const KnownCaller* operator->() const { return caller_; }
  bool operator==(const CallerReference& other) const { return caller_ == other.caller_; }
  explicit operator bool() const { return caller_ != nullptr; }

 private:
  KnownCaller* caller_ = nullptr;
};

}  // namespace weir::transfer
