// KnownCaller: what is known of whoever made a path to here, for as long as the path or a request of it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/caller.h"

namespace weir::transfer {

// What a certificate proves, shared by all paths that were made with it.
using ProvenNames = std::shared_ptr<const std::vector<std::string>>;

// Immutable but for the count, which is the engine's thread's alone. Other threads may read it while they owe the
// answer to a request, because that holds it.
class KnownCaller {
 public:
  // `claimed`: what it calls itself, which counts only where nothing is proven.
  KnownCaller(std::string_view address, std::string_view claimed, ProvenNames proven)
      : proven_(std::move(proven)), address_bytes_(static_cast<std::uint32_t>(address.size())) {
    if (has_identity()) claimed = {};
    text_.reserve(address.size() + claimed.size());
    text_.append(address).append(claimed);
  }

  Caller shown() const {
    const std::string_view text = text_;
    const std::string_view address = text.substr(0, address_bytes_);
    if (!has_identity()) return {.name = text.substr(address_bytes_), .address = address};
    return {.name = proven_->empty() ? std::string_view{} : std::string_view(proven_->front()),
            .names = *proven_,
            .address = address};
  }

 private:
  friend class CallerReference;
  bool has_identity() const { return proven_ != nullptr; }

  const ProvenNames proven_;
  std::string text_;  // its address, then what it calls itself
  const std::uint32_t address_bytes_;
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
    if (caller_ != nullptr && --caller_->references_ == 0) delete caller_;
  }

  const KnownCaller* operator->() const { return caller_; }
  bool operator==(const CallerReference& other) const { return caller_ == other.caller_; }
  explicit operator bool() const { return caller_ != nullptr; }

 private:
  KnownCaller* caller_ = nullptr;
};

}  // namespace weir::transfer
