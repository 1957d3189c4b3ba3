// Names: what a verified certificate proves about its holder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"

namespace weir::handshake {

inline constexpr std::size_t kMaxNames = 64;       // of one certificate; one with more is refused
inline constexpr std::size_t kMaxNameBytes = 255;  // of one name

// A plain value. Only subject alternative names count: the common name of a certificate proves nothing.
struct Names {
  std::vector<std::string> dns;                   // lower case; a wildcard only as the whole first label
  std::vector<std::array<std::uint8_t, 16>> ips;  // as Address has them: IPv4 is mapped
  bool development = false;                       // both sides have development identities of one authority
  bool may_serve = false;                         // the certificate's purpose allows it to be called, too
  std::int64_t valid_until_seconds = 0;           // when the first of the chain, or the root, ends
  std::uint64_t certificate = 0;                  // Certificate::number(); never 0 if it was verified

  // An IP literal is compared with `ips`, everything else with `dns`, regardless of case and of one dot at the end. A
  // wildcard stands for exactly one label. A development identity proves every name and address: its holders are
  // trusted because they can read the authority's directory, not for where they are.
  bool proves(std::string_view name) const;
  bool proves(const Address& address) const;

  // Like proves(), but by what the certificate says, also for development identities; `pattern` may be a wildcard
  // itself ("*.rack1.example"), which every name with one more label matches.
  bool matches(std::string_view pattern) const;

  // For events and logs: the first DNS name, otherwise the first address, otherwise empty.
  std::string first() const;
  // All of them, addresses as text.
  std::vector<std::string> all() const;

  bool operator==(const Names&) const = default;
};

// "10.0.0.7" or "::1", without port or brackets.
std::optional<std::array<std::uint8_t, 16>> parse_ip(std::string_view text);
std::string ip_text(const std::array<std::uint8_t, 16>& ip);

// Letters, digits, '-' and '_' in labels of at most 63 bytes; "*" may stand for the first label where asked for.
bool is_host_name(std::string_view text, bool wildcard_allowed);

}  // namespace weir::handshake
