// Weir's contestant in bench/bottleneck, written as any application is: it sees the public headers only.
//
// The server is --peers pools on one worker thread. The client is one pool without threads; it keeps turning between
// rounds, as a program with other work would.
#include <weir/weir.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "burst.h"

namespace weir::bench {
namespace {

constexpr const char* kMethod = "burst";
constexpr std::chrono::milliseconds kLongestSleep{1};
constexpr int kTurnsBeforeSleep = 16;

// Counts what the public counters do not: how often the datagrams of a path became smaller or larger.
class MtuChanges final : public Subscriber {
 public:
  // Relaxed: nothing else is published with the count.
  void on(const event::MtuChanged&) override { count_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> count_{0};
};

// With --identity DIR: the directory of development identities. Otherwise the processes share a secret.
Config make_config(const Burst& burst, const std::shared_ptr<MtuChanges>& changes) {
  Config config{.subscriber = changes};
  if (const std::string directory = burst.options.other("identity", ""); !directory.empty()) {
    config.identity = Identity::development(directory);
  } else {
    config.secret = "a burst through a bottleneck";
  }
  return config;
}

template <class T>
T need(Result<T> result, const std::string& what) {
  if (!result) fail(what + ": " + result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

Counters totals_of(const std::vector<Pool>& pools) {
  Counters sum;
  for (const Pool& pool : pools) {
    for (const Counters& worker : pool.counters()) sum += worker;
  }
  return sum;
}

std::string json(const Counters& counters, std::uint64_t mtu_changes) {
  const std::pair<const char*, std::uint64_t> named[] = {
      {"bytes_sent", counters.bytes_sent},
      {"bytes_retransmitted", counters.bytes_retransmitted},
      {"payload_bytes_sent", counters.payload_bytes_sent},
      {"packets_sent", counters.packets_sent},
      {"packets_control_only", counters.packets_control_only},
      {"packets_lost", counters.packets_lost},
      {"frames_retransmitted", counters.frames_retransmitted},
      {"probe_timeouts", counters.probe_timeouts},
      {"credit_blocked", counters.credit_blocked},
      {"ecn_marks", counters.ecn_marks},
      {"handshakes_completed", counters.handshakes_completed},
      {"mtu_changes", mtu_changes},
  };
  std::string text;
  for (const auto& [name, value] : named) {
    text += std::string(text.empty() ? "{" : ",") + '"' + name + "\":" + std::to_string(value);
  }
  return text + "}";
}

void serve(const Burst& burst) {
  const auto changes = std::make_shared<MtuChanges>();
  const Workers workers = need(Workers::open({.threads = 1}), "the worker");
  const std::string reply(burst.options.reply_bytes, 'r');
  std::vector<Pool> pools;
  for (unsigned k = 0; k < burst.peers; ++k) {
    Config config = make_config(burst, changes);
    config.listen = burst.address_of(k);
    config.on = &workers;
    pools.push_back(need(Pool::open(std::move(config)), "server " + std::to_string(k)));
    need(pools.back().serve_inline(kMethod, [&reply](InlineRequest& request) { request.reply(reply); }), kMethod);
  }
  answer_as_server([&] { return json(totals_of(pools), changes->count()); });
}

class Client {
 public:
  explicit Client(const Burst& burst)
      : burst_(burst), changes_(std::make_shared<MtuChanges>()), body_(burst.options.request_bytes, 'q') {
    Config config = make_config(burst, changes_);
    config.workers = 0;
    pools_.push_back(need(Pool::open(std::move(config)), "the client"));
    for (unsigned k = 0; k < burst.peers; ++k) peers_.push_back(pool().peer(burst.address_of(k)));
  }

  void run() {
    answer_as_client([this] { return make_round(); }, [this] { return json(totals_of(pools_), changes_->count()); },
                     [this] { pool().poll_for(kLongestSleep); });
  }

 private:
  Pool& pool() { return pools_.front(); }

  // Every call completes by its deadline at the latest.
  Round make_round() {
    Round round;
    std::uint32_t outstanding = burst_.options.window;
    round.begin_ns = now_ns();
    for (std::uint32_t i = 0; i < burst_.options.window; ++i) {
      peers_[i % peers_.size()]
          .unary(kMethod, body_, {.deadline = burst_.deadline()})
          .then([this, &round, &outstanding](Result<Reply>&& reply) {
            --outstanding;
            if (reply && reply->body().size() == burst_.options.reply_bytes) {
              round.count_success();
            } else {
              round.count_failure(reply ? "a reply of the wrong size" : reply.error().to_string());
            }
          });
    }
    while (outstanding != 0) {
      bool busy = false;
      for (int turn = 0; turn < kTurnsBeforeSleep && outstanding != 0; ++turn) busy |= pool().poll();
      if (!busy && outstanding != 0) pool().poll_for(kLongestSleep);
    }
    round.end_ns = now_ns();
    return round;
  }

  const Burst& burst_;
  std::shared_ptr<MtuChanges> changes_;
  std::vector<Pool> pools_;  // one
  std::vector<Peer> peers_;
  const std::string body_;
};

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  const Burst burst(argument_count, arguments, {"identity"});
  if (burst.options.is_server) {
    serve(burst);
  } else {
    Client(burst).run();
  }
  return 0;
}
