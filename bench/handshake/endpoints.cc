#include "bench/handshake/endpoints.h"

#include <optional>
#include <utility>

#include "bench/handshake/harness.h"
#include "handshake/identity.h"
#include "link/open.h"

namespace weir::bench {

namespace {

constexpr std::uint32_t kLoopbackHostOrder = 0x7f000001;
constexpr std::int64_t kPatienceNs = 10'000'000'000;

}  // namespace

Endpoints::Endpoints(const Identities& identities, Carrier carrier)
    : carrier_(carrier), client_(open(identities, false)), server_(open(identities, true)) {
  received_.reserve(link::kReceiveBurst);
}

Endpoints::~Endpoints() = default;

Endpoints::Side Endpoints::open(const Identities& identities, bool is_server) {
  Side side;
  const handshake::Issued& own = is_server ? identities.server : identities.client;
  const std::vector<std::byte> message(kOfferBytes);
  handshake::Endpoint::Options options;
  options.credentials =
      need(handshake::Credentials::from_pem(own.chain_pem, own.key_pem, identities.roots), "credentials");
  options.accepts = is_server;
  options.offer = [message](const handshake::CredentialId&) { return message; };
  options.answer = [message](const handshake::Outcome&) -> Result<std::vector<std::byte>> { return message; };
  options.wall_clock = handshake::wall_clock_seconds;
  options.entropy = &entropy_;
  side.endpoint = std::make_unique<handshake::Endpoint>(std::move(options));
  side.address = Address::v4(kLoopbackHostOrder, is_server ? 2 : 1);
  if (carrier_ == Carrier::udp) {
    side.buffers = std::make_unique<link::ReceiveBufferPool>(
        link::ReceiveBufferPool::Options{.max_buffers = 2 * link::kReceiveBuffers});
    side.link = need(link::open_udp({.bind = Address::v4(kLoopbackHostOrder, 0)}, *side.buffers), "a socket");
    side.address = side.link->local();
  }
  return side;
}

void Endpoints::shake() {
  now_ = {wall_ns()};
  const Instant patience = now_ + Duration(kPatienceNs);
  need(client_.endpoint->connect(next_tag_++, server_.address, "", now_), "a handshake");
  std::optional<handshake::Outcome> ours;
  std::optional<handshake::Outcome> theirs;
  bool is_busy = true;
  // Also what is said after both know: it belongs to the price.
  while (!ours || !theirs || is_busy) {
    now_ = {wall_ns()};
    is_busy = carry(client_, server_);
    is_busy |= carry(server_, client_);
    if (!is_busy) {
      expire(client_);
      expire(server_);
    }
    if (!ours) ours = client_.endpoint->take_outcome();
    if (!theirs) theirs = server_.endpoint->take_outcome();
    if (now_ > patience) fail("a handshake did not end");
  }
  for (const auto* outcome : {&*ours, &*theirs}) {
    if (outcome->failure) fail("a handshake failed: " + outcome->failure->to_string());
    if (outcome->offer.size() != kOfferBytes) fail("a negotiation message was lost");
  }
  if (ours->credential != theirs->credential) fail("the two sides have different keys");
}

bool Endpoints::carry(Side& from, Side& to) {
  bool is_busy = false;
  Address where;
  ByteSpan bytes;
  for (;;) {
    if (!from.endpoint->take_datagram(where, bytes, now_)) {
      if (from.endpoint->answer_one(now_)) continue;
      break;
    }
    is_busy = true;
    datagram_.assign(bytes.begin(), bytes.end());
    if (carrier_ == Carrier::memory) {
      to.endpoint->on_datagram(datagram_, from.address, now_);
      continue;
    }
    link::Train train{.to = where, .bytes = datagram_};
    link::SendStatus status{};
    if (from.link->send({&train, 1}, {&status, 1}) != 1) fail("a datagram was not sent");
  }
  if (carrier_ == Carrier::udp && is_busy) {
    received_.clear();
    to.link->receive(received_);
    for (const link::Datagram& datagram : received_) to.endpoint->on_datagram(datagram.bytes, datagram.from, now_);
    to.link->recycle();
  }
  return is_busy;
}

void Endpoints::expire(Side& side) {
  if (side.endpoint->next_deadline() <= now_) side.endpoint->on_timeout(now_);
}

}  // namespace weir::bench
