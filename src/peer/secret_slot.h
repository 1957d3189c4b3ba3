// How SecretMap keeps one entry: words that are all atomic, so that readers may copy them while the writer writes.
// Private to SecretMap.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bytes.h"
#include "base/sync.h"
#include "peer/secret_map.h"

namespace weir::peer {

// A slot's `use` word: generation (32 bits), live, flags.
inline constexpr std::uint64_t kReferenced = 1;  // looked up since the hand passed
inline constexpr std::uint64_t kUsedByUs = 2;
inline constexpr std::uint64_t kUsedByPeer = 4;
inline constexpr std::uint64_t kUsedByBoth = kUsedByUs | kUsedByPeer;
inline constexpr std::uint64_t kAddressed = 8;  // in the chain of its address
inline constexpr std::uint64_t kLive = 1ull << 31;
inline constexpr std::uint64_t kGeneration = 1ull << 32;
inline constexpr std::uint64_t kLifeMask = ~(kLive - 1);  // what tells one life of a slot from another

inline constexpr std::size_t kStoredBytes = 432;
inline constexpr std::size_t kWords = kStoredBytes / 8;
inline constexpr std::size_t kAddressWord = 2;

// A credential as it lies in the slots: plain bytes, keys to the chains first.
struct alignas(8) SecretMap::Stored {
  CredentialId id;
  Address handshake_address;
  std::uint16_t worker_count;
  std::uint8_t version;
  std::uint8_t initiator;
  std::uint32_t mtu;
  std::uint8_t name_length;
  std::uint8_t transport;
  std::uint8_t may_call;
  std::uint8_t unused;
  std::int64_t expires_ns;
  std::uint64_t member;
  std::array<std::byte, crypto::kSecretBytes> secret;
  crypto::KeyBytes hello_key;
  crypto::KeyBytes answer_key;
  crypto::KeyBytes reset_key;
  crypto::Incarnation remote_incarnation;
  std::array<char, kMaxCredentialName> name_bytes;
  std::array<DataAddress, kMaxDataAddresses> workers;

  void pack(const Credential& from) {
    std::memset(static_cast<void*>(this), 0, sizeof *this);
    std::copy(from.secret.bytes().begin(), from.secret.bytes().end(), secret.begin());
    each(*this, from);
    initiator = from.initiator;
    may_call = from.may_call;
  }
  void unpack(Credential& to) const {
    std::copy(secret.begin(), secret.end(), to.secret.writable().begin());
    each(to, *this);
    to.initiator = initiator != 0;
    to.may_call = may_call != 0;
  }
  template <class To, class From>
  static void each(To& to, const From& from) {
    to.id = from.id;
    to.handshake_address = from.handshake_address;
    to.worker_count = from.worker_count;
    to.version = from.version;
    to.mtu = from.mtu;
    to.name_length = from.name_length;
    to.transport = from.transport;
    to.expires_ns = from.expires_ns;
    to.member = from.member;
    to.hello_key = from.hello_key;
    to.answer_key = from.answer_key;
    to.reset_key = from.reset_key;
    to.remote_incarnation = from.remote_incarnation;
    to.name_bytes = from.name_bytes;
    to.workers = from.workers;
  }
  void wipe() { crypto::wipe({reinterpret_cast<std::byte*>(this), sizeof *this}); }
};

// Words are loaded with acquire and stored with release: a reader that sees any word of a later life then also sees
// the `use` word that ended the earlier one. (A fence each would do with relaxed words, but the thread sanitizer does
// not know fences; on x86 both are plain moves.)
struct SecretMap::Slot {
  std::array<sync::Atomic<std::uint64_t>, kWords> words{};
  sync::Atomic<std::uint64_t> use{0};
  std::array<Link, 2> next{};
  // The writer's alone from here on.
  Instant deadline;
  Instant installed;
  Instant end;
  std::uint32_t position = 0;  // in the heap
  Index other = 0;             // superseded: by whom; free: the next free one
  std::uint32_t other_generation = 0;
  State state = State::openable;

  std::uint32_t generation() const { return static_cast<std::uint32_t>(use.load(std::memory_order_relaxed) >> 32); }
  bool live() const { return (use.load(std::memory_order_relaxed) & kLive) != 0; }

  void load(Stored& out) const {
    auto* bytes = reinterpret_cast<std::byte*>(&out);
    for (std::size_t i = 0; i < kWords; ++i) weir::store(bytes + 8 * i, words[i].load(std::memory_order_acquire));
  }
  // Some of its bytes: `at` is a place in Stored, and whole words.
  template <std::size_t at>
  void load(MutableByteSpan out) const {
    static_assert(at % 8 == 0);
    for (std::size_t i = 0; i < out.size() / 8; ++i) {
      weir::store(out.data() + 8 * i, words[at / 8 + i].load(std::memory_order_acquire));
    }
  }
  void store(const Stored& from) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&from);
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i].store(weir::load<std::uint64_t>(bytes + 8 * i), std::memory_order_release);
    }
  }
  void wipe() {
    for (auto& word : words) word.store(0, std::memory_order_release);
  }
  bool matches(const CredentialId& id) const {
    return words[0].load(std::memory_order_acquire) == weir::load<std::uint64_t>(id.data()) &&
           words[1].load(std::memory_order_acquire) == weir::load<std::uint64_t>(id.data() + 8);
  }
  bool matches(const Address& address) const {
    const auto* bytes = reinterpret_cast<const std::byte*>(&address);
    return words[kAddressWord].load(std::memory_order_acquire) == weir::load<std::uint64_t>(bytes) &&
           words[kAddressWord + 1].load(std::memory_order_acquire) == weir::load<std::uint64_t>(bytes + 8) &&
           static_cast<std::uint32_t>(words[kAddressWord + 2].load(std::memory_order_acquire)) ==
               weir::load<std::uint32_t>(bytes + 16);
  }
};

}  // namespace weir::peer
