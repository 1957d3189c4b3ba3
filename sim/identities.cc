#include "sim/identities.h"

#include <map>
#include <string>
#include <tuple>

#include "handshake/identity_testing.h"
#include "handshake/names.h"

namespace weir::sim {

using handshake::testing::kTestWallSeconds;

std::shared_ptr<const handshake::Credentials> identity_of(HostId host, const Address& address,
                                                          const handshake::Validity& validity) {
  static const handshake::Authority authority = handshake::testing::make_authority("simulated authority");
  using Key = std::tuple<HostId, Address, std::int64_t, std::int64_t>;
  static std::map<Key, std::shared_ptr<const handshake::Credentials>> made;
  auto& credentials = made[{host, address, validity.from_seconds, validity.until_seconds}];
  if (credentials == nullptr) {
    handshake::NodeRequest request = handshake::testing::node_request({handshake::ip_text(address.ip)});
    request.validity = validity;
    credentials = handshake::testing::make_credentials(authority, request);
  }
  return credentials;
}

std::int64_t wall_seconds(Instant now) { return kTestWallSeconds + now.ns / 1'000'000'000; }

namespace {

// Hosts do not have new ones at the same time.
std::int64_t phase_of(const ShortCertificates& plan, HostId host) { return host * 7 % plan.period_seconds; }

// Which certificate it is; the first one was made before the run.
std::int64_t number_at(const ShortCertificates& plan, HostId host, Instant start, Instant now) {
  const std::int64_t age = (now - start) / std::chrono::seconds(1);
  return (age - phase_of(plan, host) + plan.period_seconds) / plan.period_seconds - 1;
}

}  // namespace

handshake::Validity validity_at(const ShortCertificates& plan, HostId host, Instant start, Instant now) {
  const std::int64_t begin = wall_seconds(start);
  if (plan.not_replaced == host) return {begin - 1, begin + plan.ends_after_seconds};
  const std::int64_t from = begin + phase_of(plan, host) + number_at(plan, host, start, now) * plan.period_seconds;
  return {from, from + plan.life_seconds};
}

Instant end_of_validity(const ShortCertificates& plan, Instant start) {
  return start + std::chrono::seconds(plan.ends_after_seconds + 1);
}

Instant next_certificate(const ShortCertificates& plan, HostId host, Instant start, Instant now) {
  if (plan.not_replaced == host) return Instant::never();
  const std::int64_t next = number_at(plan, host, start, now) + 1;
  return start + std::chrono::seconds(phase_of(plan, host) + next * plan.period_seconds);
}

}  // namespace weir::sim
