// Weir's contestant in bench/bottleneck, written as any application is: it sees the public headers only.
//
// The server is --peers pools on one worker thread. The client is one pool without threads; it keeps turning between
// rounds, as a program with other work would.
#include <weir/weir.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "conversation.h"

namespace weir::bench {
namespace {

constexpr const char* kMethod = "burst";
constexpr std::chrono::milliseconds kLongestSleep{1};
constexpr int kTurnsPerLook = 16;  // at the clock, while a round is under way
constexpr double kLongestDeadlineSeconds = 3600;

// Counts what the public counters do not: how often a path's datagrams became smaller or larger.
class MtuChanges final : public Subscriber {
 public:
  void on(const event::MtuChanged&) override { count_.fetch_add(1, std::memory_order_relaxed); }  // read at leisure
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> count_{0};
};

struct Settings {
  explicit Settings(const Options& options)
      : peers(static_cast<unsigned>(parse_number("peers", options.other("peers", "1"), 1, 4096))),
        deadline_seconds(parse_number("deadline", options.other("deadline", "60"), 1, kLongestDeadlineSeconds)),
        identity(options.other("identity", "")) {}

  Config config(const std::shared_ptr<MtuChanges>& changes) const {
    Config config{.subscriber = changes};
    if (identity.empty()) {
      config.secret = "a burst through a bottleneck";
    } else {
      config.identity = Identity::development(identity);
    }
    return config;
  }

  unsigned peers;
  double deadline_seconds;
  std::string identity;  // the directory of development identities; empty: a shared secret
};

template <class T>
T need(Result<T> result, const std::string& what) {
  if (!result) fail(what + ": " + result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::string json(const std::vector<Pool>& pools, const MtuChanges& changes) {
  Counters sum;
  for (const Pool& pool : pools) {
    for (const Counters& worker : pool.counters()) sum += worker;
  }
  std::string text = "{";
  const auto add = [&](const char* name, std::uint64_t value) {
    text += std::string(text.size() > 1 ? "," : "") + '"' + name + "\":" + std::to_string(value);
  };
  add("bytes_sent", sum.bytes_sent);
  add("bytes_retransmitted", sum.bytes_retransmitted);
  add("payload_bytes_sent", sum.payload_bytes_sent);
  add("packets_sent", sum.packets_sent);
  add("packets_control_only", sum.packets_control_only);
  add("packets_lost", sum.packets_lost);
  add("frames_retransmitted", sum.frames_retransmitted);
  add("probe_timeouts", sum.probe_timeouts);
  add("credit_blocked", sum.credit_blocked);
  add("ecn_marks", sum.ecn_marks);
  add("handshakes_completed", sum.handshakes_completed);
  add("mtu_changes", changes.count());
  return text + "}";
}

void serve(const Options& options) {
  const Settings settings(options);
  const auto changes = std::make_shared<MtuChanges>();
  const Workers workers = need(Workers::open({.threads = 1}), "the worker");
  const std::string reply(options.reply_bytes, 'r');
  std::vector<Pool> pools;
  for (unsigned k = 0; k < settings.peers; ++k) {
    Config config = settings.config(changes);
    config.listen = address_of(options.address, k);
    config.on = &workers;
    pools.push_back(need(Pool::open(std::move(config)), "server " + std::to_string(k)));
    need(pools.back().serve_inline(kMethod, [&reply](InlineRequest& request) { request.reply(reply); }), kMethod);
  }
  Conversation::say("{\"ready\":true}");
  for (Conversation conversation;;) {
    const Asked asked = conversation.next(-1);
    if (asked == Asked::end) return;
    if (asked == Asked::round) fail("a server makes no calls");
    if (asked == Asked::counters) Conversation::say(json(pools, *changes));
  }
}

class Client {
 public:
  explicit Client(const Options& options)
      : options_(options),
        settings_(options),
        changes_(std::make_shared<MtuChanges>()),
        body_(options.request_bytes, 'q') {
    Config config = settings_.config(changes_);
    config.workers = 0;
    pools_.push_back(need(Pool::open(std::move(config)), "the client"));
    for (unsigned k = 0; k < settings_.peers; ++k) peers_.push_back(pools_[0].peer(address_of(options.address, k)));
  }

  void run() {
    Conversation::say("{\"ready\":true}");
    for (Conversation conversation;;) {
      switch (conversation.next(0)) {
        case Asked::nothing:
          pools_[0].poll_for(kLongestSleep);
          break;
        case Asked::round:
          Conversation::say(make_round().json());
          break;
        case Asked::counters:
          Conversation::say(json(pools_, *changes_));
          break;
        case Asked::end:
          return;
      }
    }
  }

 private:
  // Every call of a round completes by its deadline at the latest.
  Round make_round() {
    Round round;
    const auto deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(settings_.deadline_seconds * 1e9));
    std::uint32_t outstanding = options_.window;
    round.begin_ns = now_ns();
    for (std::uint32_t i = 0; i < options_.window; ++i) {
      peers_[i % peers_.size()]
          .unary(kMethod, body_, {.deadline = deadline})
          .then([this, &round, &outstanding](Result<Reply>&& reply) {
            --outstanding;
            if (reply && reply->body().size() == options_.reply_bytes) {
              ++round.completed;
            } else if (++round.failed == 1) {
              round.first_failure = reply ? "a reply of the wrong size" : reply.error().to_string();
            }
          });
    }
    while (outstanding != 0) {
      bool busy = false;
      for (int turn = 0; turn < kTurnsPerLook && outstanding != 0; ++turn) busy |= pools_[0].poll();
      if (!busy && outstanding != 0) pools_[0].poll_for(kLongestSleep);
    }
    round.end_ns = now_ns();
    return round;
  }

  const Options& options_;
  const Settings settings_;
  std::shared_ptr<MtuChanges> changes_;
  std::vector<Pool> pools_;  // one; as many as json() takes
  std::vector<Peer> peers_;
  const std::string body_;
};

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  const Options options = parse_options(argument_count, arguments, {"peers", "deadline", "identity"}, 16'000);
  prepare_process(options);
  if (options.is_server) {
    serve(options);
  } else {
    Client(options).run();
  }
  return 0;
}
