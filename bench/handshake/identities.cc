#include "bench/handshake/identities.h"

#include "bench/handshake/harness.h"
#include "handshake/identity.h"

namespace weir::bench {

Identities make_identities(handshake::KeyType key) {
  const std::int64_t now_seconds = handshake::wall_clock_seconds();
  const handshake::Validity validity{now_seconds - 3600, now_seconds + 24 * 3600};
  const handshake::Authority authority =
      need(handshake::Authority::create({.name = "benchmark", .validity = validity, .key = key}), "the authority");
  const auto issue = [&](const char* name) {
    return need(authority.issue({.names = {name, kLoopback}, .validity = validity, .key = key}), "a certificate");
  };
  return {authority.certificate_pem(), issue("client.example"), issue("server.example")};
}

}  // namespace weir::bench
