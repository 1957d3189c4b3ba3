// A throw-away self-signed certificate for the TLS peers.
#pragma once

#include <string>

namespace weir::bench {

// Writes certificate.pem and key.pem (P-256, for "localhost", valid for a day) into `directory`.
void write_certificate(const std::string& directory);

}  // namespace weir::bench
