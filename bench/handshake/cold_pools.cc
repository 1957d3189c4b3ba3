#include <chrono>
#include <string>
#include <thread>

#include "bench/handshake/cold.h"
#include "bench/handshake/harness.h"
#include "weir/weir.h"

namespace weir::bench {

namespace {

constexpr Method kEcho{"bench.echo"};
constexpr std::size_t kServerReceiveBuffers = 64;  // hundreds of pools in one process need not hold 64 MiB each
constexpr std::chrono::seconds kPatience{30};

Identity identity_of(const handshake::Issued& own, const std::string& roots) {
  return Identity::from_pem(own.chain_pem, own.key_pem, roots);
}

}  // namespace

ColdPools::ColdPools(const Identities& identities, std::size_t servers)
    : identities_(identities), workers_(need(Workers::open({.threads = 1}), "workers")) {
  for (std::size_t i = 0; i < servers; ++i) {
    Config config;
    config.listen = std::string(kLoopback) + ":0";
    config.identity = identity_of(identities.server, identities.roots);
    config.on = &workers_;
    config.executor_threads = 0;
    config.limits.receive_buffers = kServerReceiveBuffers;
    servers_.push_back(need(Pool::open(std::move(config)), "a server"));
    need(servers_.back().serve_inline(kEcho, [](InlineRequest& request) { request.reply(request.body()); }), "serving");
  }
}

ColdPools::~ColdPools() {
  for (const Pool& server : servers_) (void)server.close(std::chrono::milliseconds(100));
}

std::int64_t ColdPools::first_replies_ns(std::size_t count) {
  Config config;
  config.identity = identity_of(identities_.client, identities_.roots);
  const Pool client = need(Pool::open(std::move(config)), "the client");
  std::vector<Peer> peers;
  for (std::size_t i = 0; i < count; ++i) peers.push_back(client.peer(servers_[i].listen_address()));
  const std::vector<std::byte> body(kBodyBytes);
  std::vector<Call> calls;
  calls.reserve(count);

  std::this_thread::sleep_for(kPause);
  const std::int64_t began_ns = wall_ns();
  for (const Peer& peer : peers) calls.push_back(peer.unary(kEcho, Bytes{body}, {.deadline = kPatience}));
  for (Call& call : calls) {
    if (need(call.get(), "a call to a cold peer").body().size() != kBodyBytes) fail("a reply has another size");
  }
  const std::int64_t took_ns = wall_ns() - began_ns;
  (void)client.close(std::chrono::milliseconds(500));
  return took_ns;
}

}  // namespace weir::bench
