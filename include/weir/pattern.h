// Pattern: what kind of exchange a large message is part of. Its opening says so, before any data flows.
#pragma once

#include <cstdint>

namespace weir {

// As it travels (docs/protocol.md, G-2). 4 to 6 are set aside for streams.
enum class Pattern : std::uint8_t {
  unary = 0,      // a request to one peer, or its reply
  broadcast = 1,  // a request that goes to several
  put = 2,        // a part of a put
  get = 3,        // a part of a get: always a reply
};

}  // namespace weir
