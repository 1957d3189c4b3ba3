// How many calls can be under way at once, and what each takes: a client makes --calls calls at once to --peers servers
// in another process, whose handlers keep them all until they are told to answer. Prints how many calls were submitted,
// sent and in a handler at the same time, and the memory that each took on either side beyond its payload.
//
// The memory is what the kernel says of the process (VmRSS), after minus before, so that everything counts: records,
// slots, queues, what the heap wastes. A million calls are submitted at once; the limits that bound how many of them
// are sent are printed with their names.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace weir::bench {
namespace {

using namespace std::chrono_literals;

constexpr const char* kMethod = "hold";
constexpr const char* kSecret = "calls that wait for their answers";
constexpr std::uint32_t kMostPeers = 4096;
constexpr std::uint32_t kServersReceiveBuffers = 64;  // of 64 KiB, for each of many servers in one process
constexpr int kNotRun = 77;                           // as ctest has it
constexpr int kTurnsPerLook = 64;
constexpr std::uint32_t kCallsPerTurn = 1024;
constexpr std::uint32_t kWarmUp = 64;  // calls to each peer before anything is measured
constexpr auto kDeadline = 10min;
constexpr std::uint64_t kPatienceNs = 300'000'000'000;  // for each step
constexpr std::uint64_t kQuietNs = 1'000'000'000;       // nothing came for so long: what is sent is all that may be

struct Options {
  std::uint32_t calls = 1'000'000;
  std::uint32_t peers = 60;
  std::uint32_t networks = 1;
  std::uint32_t payload = 64;
  std::uint64_t max_reply = 64;
  std::uint64_t least_held = 0;
  std::uint32_t most_bytes = 0;
  bool shows_limits = false;
};

// What the two processes tell each other.
struct Shared {
  std::atomic<std::uint32_t> ports[kMostPeers];
  std::atomic<bool> are_listening{false};
  std::atomic<bool> are_too_small{false};  // the receive buffers that the kernel gives, for so many requests
  std::atomic<std::uint64_t> held{0};
  std::atomic<bool> answers{false};  // handlers answer from now on
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> asked{0}, told{0};  // how often the servers were to say the next, and did
  std::atomic<std::uint64_t> resident_bytes{0};  // of the servers' process, at rest
};

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

[[noreturn]] void fail(const std::string& sentence) {
  fmt::print(stderr, "error: {}\n", sentence);
  std::exit(1);
}

template <class T>
T need(Result<T> result, const char* what) {
  if (!result) fail(fmt::format("{}: {}", what, result.error().to_string()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + std::strlen("VmRSS:"), nullptr, 10) * 1024;
  }
  fail("the kernel does not say how much memory this process has");
}

// ---- the servers ---------------------------------------------------------------------------------------------------

// All of 127.0.0.0/8 is loopback.
std::string ip_of(const Options& options, std::uint32_t server) {
  return fmt::format("127.0.{}.1", server % options.networks);
}

// Of the calls to one server, with what each costs besides.
std::size_t request_bytes(const Options& options) {
  constexpr std::size_t kOverhead = 64;
  return (std::size_t{options.calls} / options.peers + kWarmUp) * (options.payload + kOverhead);
}

// What has to be raised for so many calls to one peer, or at all.
void set_limits(const Options& options, Limits& limits) {
  // The deepest calls have slots of their own, an eighth of all.
  limits.calls_per_peer = std::max(limits.calls_per_peer, std::min(options.calls / options.peers * 5 / 4, 1u << 20));
  limits.queued_calls = std::max(limits.queued_calls, options.calls);
  limits.request_bytes_per_peer = std::max(limits.request_bytes_per_peer, request_bytes(options));
  limits.request_bytes = std::max(limits.request_bytes, request_bytes(options));
}

// What a pool says of itself: at most a quarter of its socket's receive buffer.
std::size_t request_bytes_in_force(const Pool& pool) {
  constexpr std::string_view kName = "requests received and unanswered, all peers, bytes: ";
  const std::string text = pool.limits();
  const std::size_t at = text.find(kName);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + kName.size(), nullptr, 10);
}

void serve(const Options& options, Shared& shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Workers workers = need(Workers::open({.threads = 0}), "the servers' worker");
  std::vector<Responder> held;
  held.reserve(options.calls + kWarmUp * options.peers);
  std::vector<Pool> pools;
  for (std::uint32_t i = 0; i < options.peers; ++i) {
    Config config{.listen = ip_of(options, i) + ":0", .secret = kSecret, .on = &workers};
    config.limits.receive_buffers = kServersReceiveBuffers;
    set_limits(options, config.limits);
    pools.push_back(need(Pool::open(std::move(config)), "a server"));
    need(pools.back().serve_inline(kMethod,
                                   [&](InlineRequest& request) {
                                     if (shared.answers) return request.reply(std::string_view{});
                                     held.push_back(request.defer());
                                     shared.held = held.size();
                                   }),
         kMethod);
    if (i == 0) shared.are_too_small = request_bytes_in_force(pools.back()) < request_bytes(options);
    const std::string address = pools.back().listen_address();
    shared.ports[i] = static_cast<std::uint32_t>(std::stoul(address.substr(address.rfind(':') + 1)));
  }
  shared.are_listening = true;
  while (!shared.is_over) {
    bool is_busy = false;
    for (int turn = 0; turn < kTurnsPerLook; ++turn) is_busy |= workers.poll();
    if (shared.answers) {
      for (Responder& one : held) one.reply(std::string_view{});
      held.clear();
      shared.held = 0;
    }
    if (is_busy) continue;
    if (const std::uint64_t asked = shared.asked; shared.told != asked) {
      shared.resident_bytes = resident_bytes();
      shared.told = asked;
    }
    workers.poll_for(1ms);
  }
}

// ---- the client ----------------------------------------------------------------------------------------------------

class Client {
 public:
  Client(const Options& options, Shared& shared)
      : options_(options), shared_(shared), pool_(open()), body_(options.payload, 'q') {
    for (std::uint32_t i = 0; i < options.peers; ++i) {
      const std::uint32_t port = shared.ports[i].load(std::memory_order_relaxed);
      peers_.push_back(pool_.peer(fmt::format("{}:{}", ip_of(options, i), port)));
    }
  }

  void run() {
    // Paths, rings and heaps are there before anything is measured.
    shared_.answers = true;
    for (std::uint32_t i = 0; i < kWarmUp * options_.peers; ++i) call(i);
    turn_until([&] { return outstanding_ == 0; }, "the first calls");
    shared_.answers = false;
    const std::uint64_t frames_before = counters().frames_retransmitted;
    const std::uint64_t payload_before = counters().payload_bytes_sent;
    const auto [client_before, servers_before] = resident_at_rest();

    const std::uint64_t begin_ns = now_ns();
    for (std::uint32_t i = 0; i < options_.calls; ++i) {
      call(i);
      if (i % kCallsPerTurn == 0) pool_.poll();
    }
    const std::uint32_t submitted = outstanding_;
    const std::uint64_t held = wait_until_nothing_comes(begin_ns);
    const auto [client_after, servers_after] = resident_at_rest();
    const std::uint64_t sent = (counters().payload_bytes_sent - payload_before) / options_.payload;
    fmt::print("submitted: {}, of which {} had failed\n", submitted, failed_);
    fmt::print("sent and unanswered: {}\nin handlers: {}\n", sent, held);
    const double at_client = each(client_after - client_before, submitted);
    const double at_servers = each(servers_after - servers_before, held);
    fmt::print("memory of a call beyond its payload of {} bytes: {:.0f} bytes at the client, {:.0f} at the servers\n",
               options_.payload, at_client, at_servers);
    fmt::print("resident memory: client {:.1f} MB before, {:.1f} after; servers {:.1f} and {:.1f}\n",
               megabytes(client_before), megabytes(client_after), megabytes(servers_before), megabytes(servers_after));

    shared_.answers = true;
    turn_until([&] { return outstanding_ == 0; }, "the answers");
    fmt::print("answered: {}, failed: {}, frames sent again: {}\n", submitted - failed_, failed_,
               counters().frames_retransmitted - frames_before);
    if (failed_ != 0) fail(fmt::format("{} calls failed, the first with: {}", failed_, first_failure_));
    if (held < options_.least_held) fail(fmt::format("fewer than {} calls were in handlers", options_.least_held));
    if (options_.most_bytes != 0 && std::max(at_client, at_servers) > options_.most_bytes) {
      fail(fmt::format("a call takes more than {} bytes beyond its payload", options_.most_bytes));
    }
  }

 private:
  Pool open() const {
    Config config{.secret = kSecret, .workers = 0};
    set_limits(options_, config.limits);
    Pool pool = need(Pool::open(std::move(config)), "the client");
    if (options_.shows_limits) fmt::print("{}\n", pool.limits());
    return pool;
  }

  void call(std::uint32_t number) {
    ++outstanding_;
    peers_[number % peers_.size()]
        .unary(kMethod, body_, {.deadline = kDeadline, .max_reply = options_.max_reply})
        .then([this](const Result<Reply>& reply) {
          --outstanding_;
          if (!reply && ++failed_ == 1) first_failure_ = reply.error().to_string();
        });
  }

  // Until no further request has come to a handler for a while.
  std::uint64_t wait_until_nothing_comes(std::uint64_t begin_ns) {
    std::uint64_t held = 0, came_ns = now_ns();
    turn_until(
        [&] {
          const std::uint64_t now = now_ns();
          if (const std::uint64_t newest = shared_.held; newest != held) {
            held = newest;
            came_ns = now;
          }
          return now - came_ns > kQuietNs;
        },
        "the requests to arrive");
    fmt::print("{:.2f} s until the last request was in its handler\n", 1e-9 * static_cast<double>(came_ns - begin_ns));
    return held;
  }

  // Of the client and of the servers, when both have nothing to do.
  std::pair<std::uint64_t, std::uint64_t> resident_at_rest() {
    const std::uint64_t asked = ++shared_.asked;
    turn_until([&] { return shared_.told == asked; }, "the servers to rest");
    return {resident_bytes(), shared_.resident_bytes};
  }

  template <class Done>
  void turn_until(Done&& done, const char* what) {
    const std::uint64_t end_ns = now_ns() + kPatienceNs;
    while (!done()) {
      bool is_busy = false;
      for (int turn = 0; turn < kTurnsPerLook; ++turn) is_busy |= pool_.poll();
      if (!is_busy) pool_.poll_for(1ms);
      if (now_ns() > end_ns) fail(fmt::format("waiting for {} took too long", what));
    }
  }

  Counters counters() const { return pool_.counters().front(); }
  static double each(std::uint64_t bytes, std::uint64_t calls, std::uint32_t payload) {
    return calls == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(calls) - payload;
  }
  double each(std::uint64_t bytes, std::uint64_t calls) const { return each(bytes, calls, options_.payload); }
  static double megabytes(std::uint64_t bytes) { return 1e-6 * static_cast<double>(bytes); }

  const Options& options_;
  Shared& shared_;
  const Pool pool_;
  const std::string body_;
  std::vector<Peer> peers_;
  std::uint32_t outstanding_ = 0;
  std::uint64_t failed_ = 0;
  std::string first_failure_;
};

Options parse(int argument_count, char** arguments) {
  Options options;
  CLI::App app("Makes many calls at once that all wait for their answers, and says what each takes");
  app.add_option("--calls", options.calls, "Calls that are submitted at once")->check(CLI::Range(1u, 1u << 24));
  app.add_option("--peers", options.peers, "Servers, all in one process")->check(CLI::Range(1u, kMostPeers));
  app.add_option("--networks", options.networks, "Networks (of loopback) that the servers are in")
      ->check(CLI::Range(1u, 255u));
  app.add_option("--payload", options.payload, "Bytes of a request")->check(CLI::Range(1u, 16'000u));
  app.add_option("--max-reply", options.max_reply, "CallOptions::max_reply; 0: any reply");
  app.add_option("--least-held", options.least_held, "Fail if fewer calls are in handlers at a time");
  app.add_option("--most-bytes", options.most_bytes, "Fail if a call takes more than this beyond its payload");
  app.add_flag("--limits", options.shows_limits, "Print the client's limits");
  try {
    app.parse(argument_count, arguments);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  const Options options = parse(argument_count, arguments);
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("there is no memory to share");
  auto& shared = *new (memory) Shared;
  const pid_t servers = fork();
  if (servers < 0) fail("there can be no second process");
  if (servers == 0) {
    serve(options, shared);
    std::_Exit(0);
  }
  while (!shared.are_listening) {
    if (waitpid(servers, nullptr, WNOHANG) != 0) return 1;
    std::this_thread::sleep_for(1ms);
  }
  if (options.least_held != 0 && shared.are_too_small) {
    fmt::print("not run: the kernel gives smaller receive buffers than so many calls need: see net.core.rmem_max\n");
    kill(servers, SIGKILL);
    waitpid(servers, nullptr, 0);
    return kNotRun;
  }
  Client(options, shared).run();
  shared.is_over = true;
  waitpid(servers, nullptr, 0);
  return 0;
}
