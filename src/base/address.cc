#include "base/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

namespace weir {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Error invalid(std::string_view text, std::string_view why) {
  return {Code::invalid_argument, "\"" + std::string{text} + "\" is not an address: " + std::string{why}};
}

Address from_v4(const in_addr& ip, std::uint16_t port) { return Address::v4(ntohl(ip.s_addr), port); }

Address from_v6(const in6_addr& ip, std::uint16_t port, std::uint32_t scope) {
  Address address;
  std::memcpy(address.ip.data(), &ip, address.ip.size());
  address.port = port;
  address.scope = static_cast<std::uint16_t>(scope);
  return address;
}

bool parse_number(std::string_view text, std::uint16_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && error == std::errc{} && end == text.data() + text.size();
}

Result<Address> parse_v6(std::string_view text, std::string_view host, std::uint16_t port) {
  std::uint16_t scope = 0;
  const std::size_t percent = host.find('%');
  std::string ip{host.substr(0, percent)};
  if (percent != std::string_view::npos) {
    const std::string interface {
      host.substr(percent + 1)
    };
    if (!parse_number(interface, scope)) scope = static_cast<std::uint16_t>(if_nametoindex(interface.c_str()));
    if (scope == 0) return std::unexpected(invalid(text, "there is no network interface \"" + interface + "\""));
  }
  in6_addr parsed;
  if (inet_pton(AF_INET6, ip.c_str(), &parsed) != 1) {
    return std::unexpected(invalid(text, "what is in brackets is not an IPv6 address"));
  }
  return from_v6(parsed, port, scope);
}

// IPv4 is preferred where a name has both, so that every process of a cluster picks the same one whatever its
// resolver's order.
Result<Address> resolve(std::string_view text, const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int failure = getaddrinfo(host.c_str(), nullptr, &hints, &found); failure != 0) {
    return std::unexpected(
        Error{Code::system, "cannot resolve \"" + host + "\": " + std::string{gai_strerror(failure)}});
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{found, &freeaddrinfo};
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET) continue;
    sockaddr_in v4;
    std::memcpy(&v4, entry->ai_addr, sizeof v4);
    return from_v4(v4.sin_addr, port);
  }
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET6) continue;
    sockaddr_in6 v6;
    std::memcpy(&v6, entry->ai_addr, sizeof v6);
    return from_v6(v6.sin6_addr, port, v6.sin6_scope_id);
  }
  return std::unexpected(invalid(text, "the name has neither an IPv4 nor an IPv6 address"));
}

std::uint64_t load64(const std::uint8_t* from) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

bool Address::is_v4() const { return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), ip.begin()); }

std::string Address::to_string() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_v4()) {
    inet_ntop(AF_INET, ip.data() + kMappedPrefix.size(), text, sizeof text);
    return std::string{text} + ":" + std::to_string(port);
  }
  inet_ntop(AF_INET6, ip.data(), text, sizeof text);
  const std::string zone = scope == 0 ? "" : "%" + std::to_string(scope);
  return "[" + std::string{text} + zone + "]:" + std::to_string(port);
}

Address Address::v4(std::uint32_t host_order, std::uint16_t port) {
  Address address;
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), address.ip.begin());
  for (std::size_t i = 0; i < 4; ++i) {
    address.ip[kMappedPrefix.size() + i] = static_cast<std::uint8_t>(host_order >> (24 - 8 * i));
  }
  address.port = port;
  return address;
}

Result<Address> Address::parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon < text.rfind(']') + 1) {
    return std::unexpected(invalid(text, "it has no port (write HOST:PORT)"));
  }
  std::uint16_t port = 0;
  if (!parse_number(text.substr(colon + 1), port)) {
    return std::unexpected(invalid(text, "its port is not a number from 0 to 65535"));
  }
  const std::string_view host = text.substr(0, colon);
  if (host.empty()) return std::unexpected(invalid(text, "it has no host (write HOST:PORT)"));
  if (host.find('\0') != std::string_view::npos) return std::unexpected(invalid(text, "it contains a zero byte"));
  if (host.front() == '[') {
    if (host.back() != ']') return std::unexpected(invalid(text, "its bracket is not closed before the port"));
    return parse_v6(text, host.substr(1, host.size() - 2), port);
  }
  if (host.find(':') != std::string_view::npos) {
    return std::unexpected(invalid(text, "an IPv6 address needs brackets (write [HOST]:PORT)"));
  }
  const std::string terminated{host};
  in_addr parsed;
  if (inet_pton(AF_INET, terminated.c_str(), &parsed) == 1) return from_v4(parsed, port);
  return resolve(text, terminated, port);
}

std::size_t AddressHash::operator()(const Address& address) const {
  const std::uint64_t low = load64(address.ip.data());
  const std::uint64_t high = load64(address.ip.data() + 8);
  const std::uint64_t ends = static_cast<std::uint64_t>(address.port) << 16 | address.scope;
  return fold(fold(low ^ 0xa0761d6478bd642fULL, high ^ 0xe7037ed1a0b428dbULL) ^ ends, 0x8ebc6af09c88c6e3ULL);
}

}  // namespace weir
