#include "sim/identities.h"

#include <map>
#include <string>
#include <utility>

#include "handshake/identity_testing.h"
#include "handshake/names.h"

namespace weir::sim {

using handshake::testing::kTestWallSeconds;

std::shared_ptr<const handshake::Credentials> identity_of(HostId host, const Address& address) {
  static const handshake::Authority authority = handshake::testing::make_authority("simulated authority");
  static std::map<std::pair<HostId, Address>, std::shared_ptr<const handshake::Credentials>> made;
  auto& credentials = made[{host, address}];
  if (credentials == nullptr) {
    handshake::NodeRequest request = handshake::testing::node_request({handshake::ip_text(address.ip)});
    request.validity = {kTestWallSeconds - kValidSeconds, kTestWallSeconds + kValidSeconds};
    credentials = handshake::testing::make_credentials(authority, request);
  }
  return credentials;
}

std::int64_t wall_seconds(Instant now) { return kTestWallSeconds + now.ns / 1'000'000'000; }

}  // namespace weir::sim
