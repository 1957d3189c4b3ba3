#include "pool/nics.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <span>

#include "base/fork_guard.h"

namespace weir::pool {
namespace {

// Per process. An entry without pools stays until its interface is joined again: there are few interfaces.
struct Nics {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Nic>> by_interface;
};

Nics& nics() {
  static constinit OnePerProcess<Nics> all;  // never destroyed: pools may be static objects, too
  return all.get();
}

bool is_wildcard(const Address& address) {
  return std::ranges::all_of(address.is_v4() ? std::span(address.ip).subspan(12) : std::span(address.ip),
                             [](std::uint8_t byte) { return byte == 0; });
}

bool is_loopback_v4(const Address& address) { return address.is_v4() && address.ip[12] == 127; }

bool has_address(const ifaddrs& interface, const Address& address) {
  if (interface.ifa_addr == nullptr) return false;
  if (interface.ifa_addr->sa_family == AF_INET && address.is_v4()) {
    sockaddr_in own;
    std::memcpy(&own, interface.ifa_addr, sizeof own);
    return std::memcmp(&own.sin_addr, address.ip.data() + 12, 4) == 0;
  }
  if (interface.ifa_addr->sa_family == AF_INET6 && !address.is_v4()) {
    sockaddr_in6 own;
    std::memcpy(&own, interface.ifa_addr, sizeof own);
    return std::memcmp(&own.sin6_addr, address.ip.data(), 16) == 0;
  }
  return false;
}

}  // namespace

std::string interface_of(const Address& address) {
  if (is_wildcard(address)) return {};
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, &freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    // All of 127.0.0.0/8 is the loopback interface's.
    const bool is_its_loopback = is_loopback_v4(address) && (each->ifa_flags & IFF_LOOPBACK) != 0;
    if (!is_its_loopback && !has_address(*each, address)) continue;
    const std::string_view name = each->ifa_name;
    return std::string(name.substr(0, name.find(':')));  // behind the colon: one of its addresses
  }
  return {};
}

Result<std::shared_ptr<Nic>> join_nic(std::string_view interface, std::uint64_t bits_per_s, Instant now) {
  Nics& all = nics();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<Nic>& known = all.by_interface.try_emplace(std::string(interface)).first->second;
  std::shared_ptr<Nic> nic = known.lock();
  if (nic == nullptr) {
    nic = std::make_shared<Nic>(std::string(interface), std::make_shared<schedule::NicShaper>(bits_per_s / 8, now));
    known = nic;
    return nic;
  }
  if (nic->shaper->rate() == bits_per_s / 8) return nic;
  return std::unexpected(
      Error(Code::invalid_argument, "nic_bits_per_s is " + std::to_string(bits_per_s) + ", and another pool named " +
                                        std::to_string(nic->shaper->rate() * 8) + " for the same interface" +
                                        (interface.empty() ? "" : " " + std::string(interface))));
}

}  // namespace weir::pool
