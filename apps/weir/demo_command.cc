// `weir demo`: one client, many servers, thousands of calls at once, on this machine.
#include <fmt/format.h>

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
constexpr std::size_t kReceiveBuffers = 64;  // a hundred pools in one process need not hold 64 MiB each

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
    Config config;
    config.identity = Identity::development();
    client_.emplace(value_or_fail(Pool::open(std::move(config))));
    for (const Pool& server : servers_) peers_.push_back(client_->peer(server.listen_address()));
    std::minstd_rand random(1);
    for (std::byte& byte : noise_) byte = static_cast<std::byte>(random() >> 8);
  }

  void run() {
    {
      LiveView view(fmt::format("1 client, {} servers, {} calls outstanding, {} B each way, sealed with {}",
                                options_.peers, with_commas(options_.calls), options_.request_bytes,
                                aes_in_use(false)));
      view_ = &view;
      began_ns_ = last_shown_ns_ = now_ns();
      end_ns_ = began_ns_ + static_cast<std::int64_t>(options_.seconds * 1e9);
      client_->run(fire_rounds());
      ended_ns_ = now_ns();
      // The last picture, unless it was drawn just now.
      if (static_cast<double>(ended_ns_ - last_shown_ns_) * 1e-9 >= view.interval_s() / 4) show(ended_ns_);
      view_ = nullptr;
    }
    summarize();
    close();
    if (failures_ != 0) {
      fail(fmt::format("{} calls failed, the first with: {}", failures_, first_error_->to_string()));
    }
  }

 private:
  Pool open_server() {
    Config config;
    config.listen = "127.0.0.1:0";
    config.identity = Identity::development();
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
    Result<Reply> result = co_await peer->unary(kEcho, Bytes{body_});
    std::int64_t ended_ns = now_ns();
    if (!result) {
      count_failure(result.error());
    } else if (!is_reply_to(number, result->body())) {
      count_failure(Error(Code::application, "a reply is not the bytes of its request", true));
    } else {
      ++calls_;
      latency_.record(static_cast<std::uint64_t>(ended_ns - began_ns));
    }
    if (++completions_ % kCompletionsPerLook == 0) look_at_clock(ended_ns);
    if (--outstanding_ == 0 && round_done_) std::exchange(round_done_, nullptr).resume();
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

  Task<void> fire_rounds() {
    std::uint64_t number = 0;
    do {
      outstanding_ = options_.calls;
      for (std::uint32_t i = 0; i < options_.calls; ++i, ++number) {
        client_->spawn(echo(&peers_[number % peers_.size()], number));
      }
      co_await RoundDone{*this};
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

  void summarize() const {
    Counters counters = totals();
    double elapsed_s = static_cast<double>(ended_ns_ - began_ns_) * 1e-9;
    auto time_at = [&](double fraction) { return in_time(static_cast<double>(latency_.at(fraction))); };
    fmt::print(
        "\nIn {:.1f} s one client thread made {} calls to {} servers, {} at once in each of {} rounds: {} calls/s.\n",
        elapsed_s, with_commas(calls_), options_.peers, with_commas(options_.calls), with_commas(rounds_),
        in_rate(static_cast<double>(calls_) / elapsed_s));
    if (failures_ == 0) {
      fmt::print("Every call was answered once, and every reply was compared with its request.\n");
    } else {
      fmt::print("{} calls FAILED.\n", with_commas(failures_));
    }
    fmt::print(
        "Half of the calls took at most {}, 99 % at most {}, the slowest {}; most of that is the wait for the "
        "others of its round.\n",
        time_at(0.5), time_at(0.99), in_time(static_cast<double>(latency_.max())));
    fmt::print(
        "All peers together sent {} in {} packets of encrypted UDP: {:.1f} % of it was payload, the rest is what "
        "encryption, acknowledgements, headers, handshakes, and probing for the paths' MTU cost.\n",
        in_bytes(counters.bytes_sent), with_commas(counters.packets_sent),
        100 * share(counters.payload_bytes_sent, counters.bytes_sent));
    if (counters.frames_retransmitted == 0) {
      fmt::print("Nothing had to be sent again.\n");
    } else {
      fmt::print(
          "{} frames ({:.2f} % of the bytes) were sent again, because they were lost or late, and no call failed.\n",
          with_commas(counters.frames_retransmitted), 100 * share(counters.bytes_retransmitted, counters.bytes_sent));
    }
    fmt::print(
        "This shows a burst to many peers, of which each gets few calls at a time. `weir perf` measures how "
        "many calls one pair of cores can make.\n");
    std::fflush(stdout);
  }

  void close() {
    // Nothing is outstanding here, so closing cannot cut anything off.
    (void)client_->close(std::chrono::seconds(1));
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
  std::uint64_t calls_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t completions_ = 0;
  std::uint64_t outstanding_ = 0;  // of this round
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
  command->add_option("--seconds", options->seconds, "How long")
      ->check(CLI::Range(0.1, 3600.0))
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--peers", options->peers, "Servers")
      ->check(CLI::Range(1u, 1000u))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--calls", options->calls, "Calls at once, in each round")
      ->check(CLI::Range(1u, 1'000'000u))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--size", options->request_bytes, "Bytes of a request and of its reply")
      ->check(CLI::Range(static_cast<std::uint32_t>(kNumberBytes), kMaxSizeBytes))
      ->type_name("BYTES")
      ->capture_default_str();
  command->callback([options] {
    catch_stop_signals();
    Demo(*options).run();
  });
}

}  // namespace weir::command
