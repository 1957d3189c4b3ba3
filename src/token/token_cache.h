// TokenCache: the write tokens that a sender has been given ahead of need. With one in hand a large message goes out at
// once, without a round trip to ask for memory (docs/protocol.md, rule G-7).
//
// A token is good for one message, and a grant may arrive twice. So the cache remembers the newest generation it has
// heard of in each of the region slots that were mentioned last; a token that is no newer is refused. A duplicate that
// is older than this memory would let two messages be written into one region, of which the receiver binds one; what
// the other wrote there does not verify. It takes hundreds of other grants between a frame and its repetition.
//
// A token is not used in the second half of its life, so that what is written with it arrives within the first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.h"
#include "token/token_class.h"

namespace weir::token {

struct Token {
  std::uint64_t region = 0;
  std::uint64_t capacity = 0;
  Instant usable_until{};

  // Of a token that arrived now.
  static constexpr Instant half_of_life(Instant now, Duration lifetime) { return now + lifetime / 2; }
};

// One per path, single-threaded. Takes memory at its first token and keeps it until clear().
class TokenCache {
 public:
  static constexpr std::size_t kMaxTokens = 64;       // per class
  static constexpr std::size_t kMaxRemembered = 384;  // region slots; more than there are tokens
  static_assert(kMaxRemembered > kMaxTokens * kTokenClasses);

  enum class Put : std::uint8_t {
    kept,
    known,    // the same one again, or an older one of its slot
    full,     // of its class there are kMaxTokens
    useless,  // no region, no bytes or no time left
  };
  Put put(const Token& token, Instant now);

  // The smallest that holds `bytes`, of equal ones the one that came last: its memory is the warmest. It is gone from
  // the cache.
  std::optional<Token> take(std::uint64_t bytes, Instant now);

  // Revoked: if it is still on its way here it will be refused. True if it was in the cache.
  bool drop(std::uint64_t region);
  // Forgets what it had heard of, too: for a new path.
  void clear() { store_.reset(); }

  std::size_t size() const { return store_ == nullptr ? 0 : store_->count; }
  bool empty() const { return size() == 0; }
  bool has_memory() const { return store_ != nullptr; }

 private:
  struct Class {
    std::array<Token, kMaxTokens> tokens;  // the oldest first
    std::size_t count = 0;
  };
  struct Store {
    std::array<Class, kTokenClasses> classes;
    std::array<std::uint64_t, kMaxRemembered> heard;  // newest region id of each slot; the slot mentioned last is last
    std::size_t heard_count = 0;
    std::size_t count = 0;
  };

  Store& store();
  bool is_news(std::uint64_t region) const;
  void remember(std::uint64_t region);
  bool remove_outdated(std::uint64_t region);
  void remove(Class& of, std::size_t at);
  void remove_expired(Class& of, Instant now);

  std::unique_ptr<Store> store_;
};

}  // namespace weir::token
