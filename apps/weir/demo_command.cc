// `weir demo`: one client, many servers, thousands of calls at once, on this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <coroutine>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/format.h"
#include "apps/weir/histogram.h"
#include "apps/weir/live_view.h"
#include "apps/weir/process.h"
#include "weir/pool.h"
#include "weir/task.h"

namespace weir::command {

namespace {

constexpr Method kEcho{"demo.echo"};
constexpr std::size_t kNumberBytes = 8;  // each request starts with its number, by which its reply is known
constexpr std::uint64_t kShifts = 251;   // so many requests in a row have different bytes behind the number, too
constexpr std::uint32_t kMaxSizeBytes = 16 * 1024;
constexpr int kCompletionsPerLook = 256;
constexpr std::size_t kReceiveBuffers = 64;           // a hundred pools in one process need not hold 64 MiB each
constexpr std::uint64_t kCallsPerBreath = 16 * 1024;  // so many are made before replies are looked at
constexpr std::uint64_t kMaxOutstandingBytes = std::uint64_t{2} << 30;
// One machine is client and servers here: what it takes long for has not failed.
constexpr std::chrono::minutes kPatience{10};  // with calls: many wait for many others
constexpr std::chrono::seconds kPatienceWithPeers{30};

struct DemoOptions {
  double seconds = 10;
  std::uint32_t peers = 100;
  std::uint32_t calls = 10'000;
  std::uint32_t request_bytes = 512;
};

// The servers, the client and what came of it. Lives on the main thread; the servers answer on a thread of their own.
class Demo {
 public:
  explicit Demo(const DemoOptions& options) : options_(options) {
    servers_on_.emplace(value_or_fail(Workers::open({.threads = 1})));
    for (std::uint32_t i = 0; i < options.peers; ++i) servers_.push_back(open_server());
    client_.emplace(value_or_fail(Pool::open(patient())));
    for (const Pool& server : servers_) peers_.push_back(client_->peer(server.listen_address()));
    std::minstd_rand random(1);
    for (std::byte& byte : noise_) byte = static_cast<std::byte>(random() >> 8);
  }

  void run() {
    client_->run(connect());
    if (stop_requested()) {
      end();
      fail("interrupted before the first call", kInterrupted);
    }
    if (first_error_) fail(*first_error_);
    {
      LiveView view(fmt::format("1 client, {}, {} outstanding, {} B each way, sealed with {}",
                                counted(options_.peers, "server"), counted(options_.calls, "call"),
                                with_commas(options_.request_bytes), aes_in_use(false)));
      view_ = &view;
      began_ns_ = last_shown_ns_ = now_ns();
      end_ns_ = began_ns_ + static_cast<std::int64_t>(options_.seconds * 1e9);
      client_->run(fire_rounds());
      ended_ns_ = now_ns();
      is_interrupted_ |= stop_requested() && ended_ns_ < end_ns_;
      // The last picture, unless it was drawn just now.
      if (static_cast<double>(ended_ns_ - last_shown_ns_) * 1e-9 >= view.interval_s() / 4) show(ended_ns_);
      view_ = nullptr;
    }
    const std::uint64_t cut_off = outstanding_;
    end();
    summarize(cut_off);
    if (failures_ != 0) {
      fail(fmt::format("{} failed, the first with: {}", counted(failures_, "call"), first_error_->to_string()));
    }
    if (is_interrupted_) fail("interrupted", kInterrupted);
  }

 private:
  static Config patient() {
    Config config;
    config.identity = Identity::development();
    config.timeouts.silence = config.timeouts.connect = config.timeouts.handshake = kPatienceWithPeers;
    return config;
  }

  Pool open_server() {
    Config config = patient();
    config.listen = "127.0.0.1:0";
    config.on = &*servers_on_;
    config.executor_threads = 0;
    config.limits.receive_buffers = kReceiveBuffers;
    Pool server = value_or_fail(Pool::open(std::move(config)));
    value_or_fail(server.serve_inline(kEcho, [](InlineRequest& request) { request.reply(request.body()); }));
    return server;
  }

  // One call: its reply must be the request, byte for byte.
  Task<void> echo(const Peer* peer, std::uint64_t number) {
    std::memcpy(body_.data(), &number, kNumberBytes);
    std::memcpy(body_.data() + kNumberBytes, behind(number), body_.size() - kNumberBytes);
    std::int64_t began_ns = now_ns();
    Result<Reply> result = co_await peer->unary(kEcho, Bytes{body_}, {.deadline = kPatience});
    std::int64_t ended_ns = now_ns();
    if (is_over_) {
      // The user did not want to wait for it.
    } else if (!result) {
      count_failure(result.error());
    } else if (!is_reply_to(number, result->body())) {
      count_failure(Error(Code::application, "a reply is not the bytes of its request", true));
    } else {
      ++calls_;
      latency_.record(static_cast<std::uint64_t>(ended_ns - began_ns));
    }
    --outstanding_;
    bool is_enough = outstanding_ == 0;
    if (++completions_ % kCompletionsPerLook == 0 && !is_over_) {
      look_at_clock(ended_ns);
      is_enough |= stop_requested();
    }
    if (is_enough && round_done_) std::exchange(round_done_, nullptr).resume();
  }

  // What follows the number in its request.
  const std::byte* behind(std::uint64_t number) const { return noise_.data() + number % kShifts; }

  bool is_reply_to(std::uint64_t number, Bytes reply) const {
    return reply.size() == body_.size() && std::memcmp(reply.data(), &number, kNumberBytes) == 0 &&
           std::memcmp(reply.data() + kNumberBytes, behind(number), reply.size() - kNumberBytes) == 0;
  }

  struct RoundDone {
    Demo& demo;
    bool await_ready() const noexcept { return demo.outstanding_ == 0; }
    void await_suspend(std::coroutine_handle<> waiter) const noexcept { demo.round_done_ = waiter; }
    void await_resume() const noexcept {}
  };

  Task<void> end_round() { co_await RoundDone{*this}; }

  // Before the rounds, so that none of them waits for handshakes.
  Task<void> connect() {
    for (const Peer& peer : peers_) {
      ++outstanding_;
      client_->spawn(connect_to(&peer));
    }
    co_await RoundDone{*this};
  }

  Task<void> connect_to(const Peer* peer) {
    Result<Reply> ready = co_await peer->ready({.deadline = kPatience});
    if (!ready && !first_error_) first_error_ = ready.error();
    --outstanding_;
    if ((outstanding_ == 0 || (stop_requested() && !is_over_)) && round_done_) {
      std::exchange(round_done_, nullptr).resume();
    }
  }

  Task<void> fire_rounds() {
    std::uint64_t number = 0;
    do {
      for (std::uint32_t i = 0; i < options_.calls; ++i, ++number) {
        ++outstanding_;
        client_->spawn(echo(&peers_[number % peers_.size()], number));
        if (i % kCallsPerBreath != kCallsPerBreath - 1) continue;
        // Overtakes the calls, and comes back behind the replies that are there by now.
        (void)co_await peers_.front().ready({.priority = 0, .deadline = kPatience});
        look_at_clock(now_ns());
        if ((is_interrupted_ = stop_requested())) co_return;
      }
      co_await RoundDone{*this};
      if ((is_interrupted_ = outstanding_ != 0)) co_return;
      ++rounds_;
      look_at_clock(now_ns());
    } while (now_ns() < end_ns_ && !stop_requested() && failures_ == 0);
  }

  void count_failure(const Error& error) {
    ++failures_;
    if (!first_error_) first_error_ = error;
  }

  void look_at_clock(std::int64_t now) {
    if (static_cast<double>(now - last_shown_ns_) * 1e-9 >= view_->interval_s()) show(now);
  }

  void show(std::int64_t now) {
    Counters counters = totals();
    double since_last_s = static_cast<double>(now - last_shown_ns_) * 1e-9;
    if (since_last_s <= 0) return;
    view_->show({
        .elapsed_s = static_cast<double>(now - began_ns_) * 1e-9,
        .total_s = options_.seconds,
        .rounds = rounds_,
        .calls = calls_,
        .failures = failures_,
        .calls_per_s = static_cast<double>(calls_ - last_shown_calls_) / since_last_s,
        .goodput = share(counters.payload_bytes_sent, counters.bytes_sent),
        .frames_sent_again = counters.frames_retransmitted,
        .latency = &latency_,
    });
    last_shown_ns_ = now;
    last_shown_calls_ = calls_;
  }

  // Of the client and all servers.
  Counters totals() const {
    Counters sum;
    for (const Counters& worker : client_->counters()) sum += worker;
    for (const Pool& server : servers_) {
      for (const Counters& worker : server.counters()) sum += worker;
    }
    return sum;
  }

  void summarize(std::uint64_t cut_off) const {
    const Counters& counters = counters_;
    double elapsed_s = static_cast<double>(ended_ns_ - began_ns_) * 1e-9;
    fmt::print("\nIn {:.1f} s one client thread made {} to {}, {} at once in {}: {} calls/s.\n", elapsed_s,
               counted(calls_, "call"), counted(options_.peers, "server"), with_commas(options_.calls),
               rounds_ == 0   ? "a round that was not finished"
               : rounds_ == 1 ? "one round"
                              : fmt::format("each of {}", counted(rounds_, "round")),
               in_rate(static_cast<double>(calls_) / elapsed_s));
    if (failures_ != 0) {
      fmt::print("{} FAILED. If this machine cannot keep up, lower --calls or --peers.\n", counted(failures_, "call"));
    } else if (cut_off != 0) {
      fmt::print("{} not answered yet when you interrupted it; every reply was compared with its request.\n",
                 cut_off == 1 ? "One call was" : fmt::format("{} were", counted(cut_off, "call")));
    } else {
      fmt::print("Every call was answered once, and every reply was compared with its request.\n");
    }
    fmt::print("Half of the calls took at most {}, 99 % at most {}, the slowest {}{}.\n", time_at(latency_, 0.5),
               time_at(latency_, 0.99), time_at(latency_, 1),
               options_.calls == 1 ? "" : "; most of that is the wait for the others of its round");
    fmt::print(
        "All peers together sent {} in {} packets of encrypted UDP: {:.1f} % of it was payload, the rest is what "
        "encryption, acknowledgements, headers, handshakes, and probing for the paths' MTU cost.\n",
        in_bytes(counters.bytes_sent), with_commas(counters.packets_sent),
        100 * share(counters.payload_bytes_sent, counters.bytes_sent));
    const bool has_survived = counters.frames_retransmitted != 0 && failures_ == 0;
    fmt::print("{}{}.\n",
               sent_again(counters.frames_retransmitted, share(counters.bytes_retransmitted, counters.bytes_sent)),
               has_survived ? ", and no call failed" : "");
    fmt::print(
        "This shows a burst to many peers, of which each gets few calls at a time. `weir perf` measures how "
        "many calls one pair of cores can make.\n");
    std::fflush(stdout);
  }

  void end() {
    counters_ = totals();
    is_over_ = true;
    // Unless it was interrupted nothing is outstanding here, and closing cuts nothing off.
    (void)client_->close(std::chrono::seconds(outstanding_ == 0 ? 1 : 0));
    if (outstanding_ != 0) client_->run(end_round());
    for (const Pool& server : servers_) (void)server.close(std::chrono::seconds(1));
  }

  const DemoOptions& options_;
  std::optional<Workers> servers_on_;
  std::vector<Pool> servers_;
  std::optional<Pool> client_;
  std::vector<Peer> peers_;
  std::vector<std::byte> body_ = std::vector<std::byte>(options_.request_bytes);
  std::vector<std::byte> noise_ = std::vector<std::byte>(options_.request_bytes + kShifts);

  LiveView* view_ = nullptr;
  Histogram latency_;
  Counters counters_;  // at the end
  std::uint64_t calls_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t completions_ = 0;
  std::uint64_t outstanding_ = 0;  // of this round
  bool is_interrupted_ = false;
  bool is_over_ = false;  // what completes now was cut off
  std::optional<Error> first_error_;
  std::coroutine_handle<> round_done_;

  std::int64_t began_ns_ = 0;
  std::int64_t end_ns_ = 0;
  std::int64_t ended_ns_ = 0;
  std::int64_t last_shown_ns_ = 0;
  std::uint64_t last_shown_calls_ = 0;
};

}  // namespace

void add_demo_command(CLI::App& app) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* command = app.add_subcommand("demo", "Show Weir at work: many servers and one client on this machine");
  command->add_option("--seconds", options->seconds, "How long; the round that is under way then is finished")
      ->check(CLI::Range(0.1, 3600.0))
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--peers", options->peers, "Servers")
      ->check(CLI::Range(1u, 1000u))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--calls", options->calls,
                   "Calls at once, in each round; of very many the first are answered while the last are made")
      ->check(CLI::Range(1u, 1'000'000u))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--size", options->request_bytes, "Bytes of a request and of its reply")
      ->check(CLI::Range(static_cast<std::uint32_t>(kNumberBytes), kMaxSizeBytes))
      ->type_name("BYTES")
      ->capture_default_str();
  command->callback([options] {
    if (std::uint64_t{options->calls} * options->request_bytes > kMaxOutstandingBytes) {
      fail_use(fmt::format("{} calls of {} bytes at once take more than {} of memory: lower --calls or --size",
                           with_commas(options->calls), with_commas(options->request_bytes),
                           in_bytes(kMaxOutstandingBytes)));
    }
    catch_stop_signals();
    Demo(*options).run();
  });
}

}  // namespace weir::command
