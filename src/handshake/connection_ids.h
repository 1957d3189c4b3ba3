// ConnectionIds: who a datagram is for.
#pragma once

#include <ngtcp2/ngtcp2.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/address.h"
#include "base/bytes.h"
#include "crypto/entropy.h"

namespace weir::handshake {

inline constexpr std::size_t kConnectionIdBytes = 8;  // of those that we choose

// Maps the ids that we chose, and those that clients chose for their first packets, to connections. One per endpoint.
class ConnectionIds {
 public:
  using Owner = std::uint64_t;

  explicit ConnectionIds(crypto::Entropy& entropy) : entropy_(&entropy) {}

  // Not yet anybody's.
  std::uint64_t draw() const {
    std::uint64_t id = 0;
    do {
      entropy_->fill(std::as_writable_bytes(std::span(&id, 1)));
    } while (ours_.contains(id));
    return id;
  }
  std::uint64_t add(Owner owner) {
    const std::uint64_t id = draw();
    ours_.emplace(id, owner);
    return id;
  }
  void remove(std::uint64_t id) { ours_.erase(id); }
  std::optional<Owner> find(const std::uint8_t* id, std::size_t bytes) const {
    if (bytes != kConnectionIdBytes) return std::nullopt;
    const auto found = ours_.find(load<std::uint64_t>(reinterpret_cast<const std::byte*>(id)));
    return found == ours_.end() ? std::nullopt : std::optional(found->second);
  }

  // A client chose the id, so it counts only together with the address: nobody can get into another's way.
  using Initial = std::pair<Address, std::string>;
  static Initial initial(const Address& from, const std::uint8_t* id, std::size_t bytes) {
    return {from, std::string(reinterpret_cast<const char*>(id), bytes)};
  }
  void add(Initial initial, Owner owner) { theirs_.emplace(std::move(initial), owner); }
  void remove(const Initial& initial) { theirs_.erase(initial); }
  std::optional<Owner> find(const Initial& initial) const {
    const auto found = theirs_.find(initial);
    return found == theirs_.end() ? std::nullopt : std::optional(found->second);
  }

  std::size_t size() const { return ours_.size() + theirs_.size(); }

  static ngtcp2_cid quic(std::uint64_t id) {
    ngtcp2_cid cid;
    ngtcp2_cid_init(&cid, reinterpret_cast<const std::uint8_t*>(&id), kConnectionIdBytes);
    return cid;
  }

 private:
  crypto::Entropy* entropy_;
  std::unordered_map<std::uint64_t, Owner> ours_;  // random ids: nobody can aim at a bucket
  std::map<Initial, Owner> theirs_;
};

}  // namespace weir::handshake
