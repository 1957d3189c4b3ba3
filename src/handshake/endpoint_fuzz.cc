// Datagrams from a stranger, to an endpoint that accepts and to one that has said its first word. Bytes alone would
// never get through the encryption, so half of the modes wrap them: what is mutated then are QUIC frames and TLS.
//
// Input: one byte of mode, then datagrams: u16 length, bytes.
#include <gnutls/gnutls.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "handshake/endpoint_testing.h"
#include "handshake/initial_packet_testing.h"

namespace {

using namespace weir;
using namespace weir::handshake;
using namespace weir::handshake::testing;

constexpr std::size_t kMaxDatagrams = 16;

void drain(Endpoint& endpoint, Instant now) {
  Address to;
  ByteSpan bytes;
  std::size_t sent = 0;
  while (endpoint.take_datagram(to, bytes, now) || endpoint.answer_one(now)) {
    if (bytes.size() > kDatagramBytes || ++sent > 64) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const bool to_server = (data[0] & 1) == 0;
  const bool wrapped = (data[0] & 2) != 0;
  TestEntropy entropy(1);
  Endpoint endpoint(to_server ? server_options(entropy) : client_options(entropy));
  Instant now{1'000'000'000};

  InitialHeader header{.to = Octets(8, 0x11), .from = Octets(8, 0x22), .token = {}};
  Octets first_id = header.to;
  const Address& from = to_server ? kClientAddress : kServerAddress;
  if (!to_server) {
    if (!endpoint.connect(1, kServerAddress, "", now)) std::abort();
    Address to;
    ByteSpan bytes;
    if (!endpoint.take_datagram(to, bytes, now)) std::abort();
    const auto* text = reinterpret_cast<const std::uint8_t*>(bytes.data());
    first_id.assign(text + 6, text + 6 + text[5]);
    const std::uint8_t* theirs = text + 6 + text[5];
    header.to.assign(theirs + 1, theirs + 1 + theirs[0]);
  }
  const InitialPackets packets(first_id, to_server);

  std::size_t at = 1;
  for (std::size_t i = 0; i < kMaxDatagrams && at + 2 <= size; ++i) {
    const std::size_t length = std::min<std::size_t>(data[at] | data[at + 1] << 8, size - at - 2);
    const std::span<const std::uint8_t> piece(data + at + 2, length);
    at += 2 + length;
    std::vector<std::byte> datagram;
    if (wrapped) {
      datagram = packets.seal(header, static_cast<std::uint32_t>(i), Octets(piece.begin(), piece.end()));
    } else {
      const auto bytes = std::as_bytes(piece);
      datagram.assign(bytes.begin(), bytes.end());
    }
    endpoint.on_datagram(datagram, from, now);
    drain(endpoint, now);
    now = now + std::chrono::milliseconds(20);
    endpoint.on_timeout(now);
    drain(endpoint, now);
  }
  // A stranger gets nobody in, and nothing outlives the timeout.
  while (!endpoint.next_deadline().is_never()) {
    now = std::max(now, endpoint.next_deadline());
    endpoint.on_timeout(now);
    drain(endpoint, now);
  }
  while (auto outcome = endpoint.take_outcome()) {
    if (!outcome->failure) std::abort();
  }
  const EndpointStats stats = endpoint.stats();
  if (stats.connections != 0 || stats.half_open != 0 || stats.closed != 0) std::abort();
  return 0;
}
