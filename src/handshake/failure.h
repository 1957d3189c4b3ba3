// Failure: from what TLS and QUIC say about an end to an error that a person understands.
#pragma once

#include <ngtcp2/ngtcp2.h>

#include <cstdint>

#include "base/address.h"
#include "weir/error.h"

namespace weir::handshake {

// The peer closed the connection. What it said is quoted in printable ASCII and bounded.
Error peer_closed(const ngtcp2_connection_close_error& close, const Address& remote);

// We ended it: `library_error` is ngtcp2's, `alert` TLS's (if the error is NGTCP2_ERR_CRYPTO).
Error we_closed(int library_error, std::uint8_t alert, const Address& remote);

// Nothing came any more. `heard`: something had come before.
Error silence(const Address& remote, bool heard);

// A code that a peer sent; `refused` if we don't know it.
Code code_from_peer(std::uint64_t value);

}  // namespace weir::handshake
