// What a call comes after: other calls that were made with {.tracked = true}, and how far they must have got.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weir {

// One of these. From Call::sent() or Call::responded(); a number that is cheap to copy and may outlive its call.
class Dependency {
 public:
  // Goes on also if the other call fails: then its failure is what is waited for.
  [[nodiscard]] Dependency or_failed() const { return Dependency(word_ | kOrFailed); }

  // For the library: the call's token, with two bits of the slot's number put to another use.
  static constexpr std::uint64_t kSent = 1u << 22, kOrFailed = 1u << 23;
  static constexpr std::uint64_t kNotTracked = 0, kFailedAtOnce = 1;
  explicit Dependency(std::uint64_t word) : word_(word) {}
  std::uint64_t token() const { return word_ & ~(kSent | kOrFailed); }
  bool is_sent() const { return (word_ & kSent) != 0; }
  bool is_or_failed() const { return (word_ & kOrFailed) != 0; }

 private:
  friend class After;
  Dependency() = default;  // a place in After
  std::uint64_t word_ = kNotTracked;
};

// All of these: `.after = {prepare.responded(), lock.sent().or_failed()}`. More than kMost are given as a span, which
// is read before the call returns. Trivially destructible, as all options are.
class After {
 public:
  static constexpr std::size_t kMost = 4;

  After() noexcept = default;
  template <std::same_as<Dependency>... Dependencies>
    requires(sizeof...(Dependencies) > 0 && sizeof...(Dependencies) <= kMost)
  After(Dependencies... dependencies) noexcept : few_{dependencies...}, count_(sizeof...(dependencies)) {}
  After(std::span<const Dependency> many) noexcept : many_(many.data()), count_(many.size()) {}

  bool empty() const { return count_ == 0; }
  std::span<const Dependency> dependencies() const { return {many_ != nullptr ? many_ : few_, count_}; }

 private:
  Dependency few_[kMost]{};
  const Dependency* many_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace weir
