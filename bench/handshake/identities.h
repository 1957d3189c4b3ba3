// The certificates that all contestants of one comparison use.
#pragma once

#include <string>

#include "handshake/authority.h"

namespace weir::bench {

inline constexpr const char* kLoopback = "127.0.0.1";  // what the server's certificate proves

// PEM texts. Both nodes are directly below one authority with a key of the same type.
struct Identities {
  std::string roots;
  handshake::Issued client;
  handshake::Issued server;
};

Identities make_identities(handshake::KeyType key);

}  // namespace weir::bench
