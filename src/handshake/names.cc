#include "handshake/names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace weir::handshake {
namespace {

constexpr std::size_t kMaxLabelBytes = 63;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_regardless_of_case(std::string_view left, std::string_view right) {
  return std::ranges::equal(left, right, {}, lower, lower);
}

std::string_view without_final_dot(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

// `pattern` may be "*.rest": any one label, then the rest.
bool fits(std::string_view pattern, std::string_view name) {
  pattern = without_final_dot(pattern);
  name = without_final_dot(name);
  if (pattern.empty() || name.empty()) return false;
  if (!pattern.starts_with("*.")) return equal_regardless_of_case(pattern, name);
  const std::size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos) return false;
  return equal_regardless_of_case(pattern.substr(1), name.substr(dot));
}

}  // namespace

bool Names::proves(std::string_view name) const {
  if (development) return true;
  if (const auto ip = parse_ip(name)) return std::ranges::find(ips, *ip) != ips.end();
  return std::ranges::any_of(dns, [&](const std::string& ours) { return fits(ours, name); });
}

bool Names::proves(const Address& address) const {
  return development || std::ranges::find(ips, address.ip) != ips.end();
}

bool Names::matches(std::string_view pattern) const {
  if (const auto ip = parse_ip(pattern)) return std::ranges::find(ips, *ip) != ips.end();
  // Both ways: a certificate for all of a rack proves each name of it, and a list may name the whole rack.
  return std::ranges::any_of(dns, [&](const std::string& ours) { return fits(ours, pattern) || fits(pattern, ours); });
}

std::string Names::first() const {
  if (!dns.empty()) return dns.front();
  return ips.empty() ? std::string{} : ip_text(ips.front());
}

std::vector<std::string> Names::all() const {
  std::vector<std::string> texts = dns;
  for (const auto& ip : ips) texts.push_back(ip_text(ip));
  return texts;
}

std::optional<std::array<std::uint8_t, 16>> parse_ip(std::string_view text) {
  if (text.size() >= INET6_ADDRSTRLEN || text.find('\0') != std::string_view::npos) return std::nullopt;
  char terminated[INET6_ADDRSTRLEN] = {};
  std::memcpy(terminated, text.data(), text.size());
  if (in_addr v4; inet_pton(AF_INET, terminated, &v4) == 1) return Address::v4(ntohl(v4.s_addr), 0).ip;
  std::array<std::uint8_t, 16> v6;
  if (inet_pton(AF_INET6, terminated, v6.data()) == 1) return v6;
  return std::nullopt;
}

std::string ip_text(const std::array<std::uint8_t, 16>& ip) {
  char text[INET6_ADDRSTRLEN] = "";
  const bool v4 = Address{.ip = ip}.is_v4();
  inet_ntop(v4 ? AF_INET : AF_INET6, ip.data() + (v4 ? 12 : 0), text, sizeof text);
  return text;
}

bool is_host_name(std::string_view text, bool wildcard_allowed) {
  if (wildcard_allowed && text.starts_with("*.")) text.remove_prefix(2);
  text = without_final_dot(text);
  if (text.empty() || text.size() > kMaxNameBytes) return false;
  std::size_t label_bytes = 0;
  for (const char c : text) {
    const char l = lower(c);
    if (c == '.') {
      if (label_bytes == 0) return false;
      label_bytes = 0;
    } else if ((l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_') {
      if (++label_bytes > kMaxLabelBytes) return false;
    } else {
      return false;
    }
  }
  return label_bytes > 0;
}

}  // namespace weir::handshake
