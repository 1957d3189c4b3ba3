// Certificate chains from a peer and PEM texts from a file, both of arbitrary bytes. What is accepted must keep the
// bounds that the rest relies on. The first byte chooses: odd is PEM, otherwise a chain, each certificate after its
// length in two bytes; the second bit is the peer's role.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "handshake/credentials.h"
#include "handshake/identity_testing.h"

namespace {

using namespace weir;
using namespace weir::handshake;
using namespace weir::handshake::testing;

// Vouches for the chains of the corpus. Its key was thrown away.
constexpr std::string_view kRoot = R"(-----BEGIN CERTIFICATE-----
MIIBMTCB5KADAgECAhBdFphhg4sbaqSfHCU3qq/WMAUGAytlcDAZMRcwFQYDVQQD
Ew5mdXp6IGF1dGhvcml0eTAeFw0yNzAxMDUwODAwMDBaFw0yNzAxMjUwODAwMDBa
MBkxFzAVBgNVBAMTDmZ1enogYXV0aG9yaXR5MCowBQYDK2VwAyEAKLJBLbG/0Dhh
EPBiBf5gWCQXuvajDG0MRsfWoTuR/3KjQjBAMB0GA1UdDgQWBBQtCL/WOu7zaggD
TP4xYNRhvbof2jAPBgNVHRMBAf8EBTADAQH/MA4GA1UdDwEB/wQEAwIBBjAFBgMr
ZXADQQDWgJPah6W1QxDnCXBjAP1SYUnWkDaLlqJRCmwh0JlZHPWVyQO39K6uFJw3
OelpHB+UIpx+qT7Tk1FlxGQ1S+0G
-----END CERTIFICATE-----
)";

const Credentials& ours() {
  static const std::shared_ptr<const Credentials> credentials =
      make_credentials(make_authority(), node_request({"us.example"}), std::string(kRoot));
  return *credentials;
}

void check(const Names& names) {
  WEIR_CHECK(names.dns.size() + names.ips.size() <= kMaxNames, "more names than the bound");
  for (const std::string& name : names.dns) {
    WEIR_CHECK(name.size() <= kMaxNameBytes && is_host_name(name, true), "a name that is none");
    WEIR_CHECK(names.matches(name), "a certificate does not match its own name");
  }
  for (const std::string& name : names.all()) WEIR_CHECK(printable(name, kMaxNameBytes) == name, "unfit for a log");
}

void verify(std::span<const std::uint8_t> input, bool peer_is_server) {
  std::vector<gnutls_datum_t> chain;
  while (input.size() >= 2 && chain.size() <= kMaxChain) {
    const std::size_t wanted = static_cast<std::size_t>(input[0]) | static_cast<std::size_t>(input[1]) << 8;
    input = input.subspan(2);
    const std::size_t size = std::min(wanted, input.size());
    chain.push_back({const_cast<unsigned char*>(input.data()), static_cast<unsigned>(size)});
    input = input.subspan(size);
  }
  const Result<Names> names = ours().verify(chain, kTestWallSeconds, peer_is_server);
  if (names) {
    check(*names);
    WEIR_CHECK(!names->development, "development by mistake");
    WEIR_CHECK(names->valid_until_seconds >= kTestWallSeconds, "expired");
  } else {
    WEIR_CHECK(names.error().code() == Code::unauthenticated, "a peer's fault told as another");
    WEIR_CHECK(printable(names.error().message(), 1000) == names.error().message(), "unfit for a log");
  }
}

void load(std::string_view pem) {
  const auto own = Credentials::from_pem(pem, pem, kRoot);
  if (own) check((*own)->names());
  (void)Certificate::list_from_pem(pem, kMaxRoots, "the roots");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span input(data + 1, size - 1);
  if ((data[0] & 1) != 0) {
    load({reinterpret_cast<const char*>(input.data()), input.size()});
  } else {
    verify(input, (data[0] & 2) == 0);
  }
  return 0;
}
