// Members: whose paths share what one of them may take of an engine (docs/security.md, "How much one member can take").
//
// A member is a certificate: all paths that were made with credentials of one certificate are one member's. With a
// shared secret nothing tells one holder from another. There are no members then: what bounds a path is all there is,
// and the number of a member in requests is one for each path.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/check.h"
#include "base/time.h"
#include "engine/waiting_requests.h"
#include "token/credit_share.h"
#include "token/grant_ledger.h"

namespace weir::engine {

struct Endpoint {
  std::uint16_t worker = 0;
  std::uint16_t port = 0;
};

// For numbers of certificates and numbers of paths not to meet, the former have the highest bit set.
inline constexpr std::uint64_t kCertificateBit = std::uint64_t{1} << 63;

inline std::uint64_t member_of_certificate(std::uint64_t certificate) { return certificate | kCertificateBit; }
// Differs from those of the paths of other engines of the pool.
inline std::uint64_t member_of_path(Endpoint endpoint, std::uint64_t serial) {
  const std::uint64_t number = std::uint64_t{endpoint.worker} << 48 | std::uint64_t{endpoint.port} << 32;
  return (number | (serial & 0xffff'ffff)) & ~kCertificateBit;
}

// What one member has, at one address. Outlives its paths for as long as handlers or the application hold something of
// it.
struct Member : token::CreditMember {
  std::uint64_t number = 0;
  std::uint32_t references = 0;                 // by paths, and by what paths have of large messages
  std::uint32_t paths = 0;                      // that the member has made
  Instant last_eviction{};                      // of one of these, to make room for another
  std::unique_ptr<token::SenderAccount> large;  // memory of large messages that it sends; open
  std::unique_ptr<WaitingRequests> waiting;     // requests of its paths, for room for their answers

  bool is_unused() const {
    return references == 0 && CreditMember::is_unused() &&
           (large == nullptr || std::ranges::all_of(large->bytes, [](std::uint64_t bytes) { return bytes == 0; }));
  }
};

// One per engine, single-threaded.
class Members {
 public:
  Member& at(std::uint64_t number) {
    Member& member = members_[number];
    member.number = number;
    return member;
  }
  // Null: there is none.
  Member* find(std::uint64_t number) {
    const auto found = members_.find(number);
    return found == members_.end() ? nullptr : &found->second;
  }
  // Of one that is_unused().
  void forget(const Member& member) { members_.erase(std::uint64_t{member.number}); }
  std::size_t size() const { return members_.size(); }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [number, member] : members_) visit(member);
  }

 private:
  std::unordered_map<std::uint64_t, Member> members_;
};

}  // namespace weir::engine
