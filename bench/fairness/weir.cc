// A bulk sender and its receivers in bench/fairness, written as any application is: it sees the public headers only.
//
// The server is one pool for each address of --at, all on one worker thread. The client sends messages of 1 MiB to all
// addresses of --at, --window at a time to each, from the first `round` that it is asked for until its input ends.
#include <weir/weir.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../bottleneck/burst.h"

namespace weir::bench {
namespace {

constexpr const char* kMethod = "bulk";
constexpr std::size_t kMessageBytes = 1u << 20;
constexpr std::chrono::milliseconds kLongestSleep{1};
constexpr int kTurnsPerLook = 16;  // at the standard input
constexpr std::size_t kReceiveBuffersOfMany = 256;

std::vector<std::string> addresses_of(const Burst& burst) {
  const std::string all = burst.options.other("at", burst.options.address);
  std::vector<std::string> addresses;
  for (std::size_t begin = 0; begin <= all.size();) {
    const std::size_t end = std::min(all.find(',', begin), all.size());
    addresses.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return addresses;
}

Config make_config() { return {.secret = "flows that share a bottleneck"}; }

template <class T>
T need(Result<T> result, const std::string& what) {
  if (!result) fail(what + ": " + result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

void serve(const Burst& burst) {
  const Workers workers = need(Workers::open({.threads = 1}), "the worker");
  std::vector<Pool> pools;
  for (const std::string& address : addresses_of(burst)) {
    Config config = make_config();
    config.listen = address;
    config.on = &workers;
    config.limits.receive_buffers = kReceiveBuffersOfMany;
    pools.push_back(need(Pool::open(std::move(config)), address));
    need(pools.back().serve(kMethod, [](const Request&) { return Reply(); }), kMethod);
  }
  answer_as_server();
}

class Client {
 public:
  explicit Client(const Burst& burst) : burst_(burst), body_(kMessageBytes, 'q') {
    Config config = make_config();
    config.workers = 0;
    pools_.push_back(need(Pool::open(std::move(config)), "the client"));
    for (const std::string& address : addresses_of(burst)) peers_.push_back(pool().peer(address));
  }

  void run() {
    answer_as_client([this] { return start(); }, [this] { return counters(); }, [this] { turn(); });
  }

 private:
  Pool& pool() { return pools_.front(); }

  Round start() {
    Round round;
    round.begin_ns = round.end_ns = now_ns();
    for (const Peer& peer : peers_) {
      for (std::uint32_t i = 0; i < burst_.options.window; ++i) send(peer);
    }
    return round;
  }

  void send(const Peer& peer) {
    peer.unary(kMethod, body_, {.deadline = burst_.deadline()}).then([this, &peer](Result<Reply>&& reply) {
      if (!reply) return (void)++failed_;  // this one rests, so that the counters tell
      ++completed_;
      send(peer);
    });
  }

  void turn() {
    for (int i = 0; i < kTurnsPerLook; ++i) {
      if (!pool().poll()) return (void)pool().poll_for(kLongestSleep);
    }
  }

  std::string counters() {
    Counters sum;
    for (const Counters& worker : pool().counters()) sum += worker;
    return "{\"bytes_sent\":" + std::to_string(sum.bytes_sent) +
           ",\"bytes_retransmitted\":" + std::to_string(sum.bytes_retransmitted) +
           ",\"completed\":" + std::to_string(completed_) + ",\"failed\":" + std::to_string(failed_) + "}";
  }

  const Burst& burst_;
  std::vector<Pool> pools_;  // one
  std::vector<Peer> peers_;
  const std::string body_;
  std::uint64_t completed_ = 0, failed_ = 0;
};

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  const Burst burst(argument_count, arguments, {"at"});
  if (burst.options.is_server) {
    serve(burst);
  } else {
    Client(burst).run();
    std::_Exit(0);  // at once: a flow that leaves sends nothing more
  }
  return 0;
}
