// Identities for tests, all in memory: an authority, and credentials that it vouches for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "handshake/authority.h"
#include "handshake/credentials.h"

namespace weir::handshake::testing {

inline constexpr std::int64_t kTestWallSeconds = 1'800'000'000;  // 2027-01-15: when tests take place
inline constexpr std::int64_t kDaySeconds = 24 * 60 * 60;

template <class T>
T value_of(Result<T> result) {
  if (!result) check_failed(source_name(__FILE__), __LINE__, "result", result.error().to_string().c_str());
  return std::move(*result);
}

inline Authority make_authority(std::string name = "test authority", KeyType key = KeyType::ed25519,
                                Validity validity = {kTestWallSeconds - 10 * kDaySeconds,
                                                     kTestWallSeconds + 10 * kDaySeconds}) {
  return value_of(Authority::create({.name = std::move(name), .validity = validity, .key = key}));
}

// Valid for a day around kTestWallSeconds, for both roles, unless `request` says otherwise.
inline NodeRequest node_request(std::vector<std::string> names, KeyType key = KeyType::ed25519) {
  return {.names = std::move(names),
          .validity = {kTestWallSeconds - kDaySeconds, kTestWallSeconds + kDaySeconds},
          .key = key};
}

// `names`: DNS names and IP literals. Trusts `roots` (PEM), or its own authority if that is empty.
inline std::shared_ptr<const Credentials> make_credentials(const Authority& authority, const NodeRequest& request,
                                                           std::string roots = "", bool development = false) {
  Issued issued = value_of(authority.issue(request));
  if (roots.empty()) roots = authority.certificate_pem();
  return value_of(Credentials::from_pem(issued.chain_pem, issued.key_pem, roots, development));
}
inline std::shared_ptr<const Credentials> make_credentials(const Authority& authority, std::vector<std::string> names,
                                                           KeyType key = KeyType::ed25519) {
  return make_credentials(authority, node_request(std::move(names), key));
}

}  // namespace weir::handshake::testing
