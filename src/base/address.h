// An IPv4 or IPv6 address with port, comparable and hashable. Parsing and printing are in address.cc.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "weir/error.h"

namespace weir {

struct Address {
  std::array<std::uint8_t, 16> ip{};  // IPv4 is kept as an IPv4-mapped IPv6 address (::ffff:a.b.c.d)
  std::uint16_t port = 0;             // host byte order
  std::uint16_t scope = 0;            // interface index of a link-local IPv6 address

  auto operator<=>(const Address&) const = default;

  bool is_v4() const;
  std::string to_string() const;

  static Address v4(std::uint32_t host_order, std::uint16_t port);
  // "127.0.0.1:4433", "[::1]:4433", "localhost:4433" (resolved once, here).
  static Result<Address> parse(std::string_view text);
};

struct AddressHash {
  std::size_t operator()(const Address& address) const;
};

}  // namespace weir
