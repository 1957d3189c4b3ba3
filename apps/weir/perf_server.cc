// `weir perf server`: answers each request with as many bytes as it asks for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/weir/format.h"
#include "apps/weir/perf_options.h"
#include "apps/weir/process.h"
#include "base/address.h"
#include "weir/bulk.h"
#include "weir/pool.h"
#include "weir/task.h"

namespace weir::command {

namespace {

constexpr std::array<std::byte, Limits{}.inline_bytes> kInlineReply{};

// A signal ends a sleep, but one that comes just before it does not.
constexpr std::chrono::milliseconds kLongestSleep{100};
// Turns without work before an adaptive loop sleeps: some tens of microseconds, the time that a busy client on
// another core takes for its next packet.
constexpr int kIdleTurns = 64;
// A spinning loop looks at the clock this often.
constexpr int kTurnsPerLook = 256;
constexpr std::size_t kReceiveBuffersOfMany = 256;  // many servers in one process need not hold 64 MiB each

// How long the reply shall be.
Result<std::uint32_t> wanted_bytes(Bytes header, Bytes body) {
  Bytes wanted = header.size() >= kReplyLengthBytes ? header : body;
  if (wanted.size() < kReplyLengthBytes) {
    return std::unexpected(
        Error(Code::invalid_argument, "a perf request says in its first four bytes how long the reply shall be"));
  }
  std::uint32_t length = 0;
  for (std::size_t i = kReplyLengthBytes; i-- > 0;) length = length << 8 | std::to_integer<std::uint32_t>(wanted[i]);
  return length;
}

void answer(InlineRequest& request) {
  Result<std::uint32_t> length = wanted_bytes(request.header(), request.body());
  if (!length) {
    request.fail(length.error().code(), length.error().message());
  } else if (*length > kInlineReply.size()) {
    request.fail(Code::too_large, "a perf reply of this size does not fit into one packet's message");
  } else {
    request.reply(Bytes{kInlineReply}.first(*length));
  }
}

// Fills a buffer and seals it in place, as a server does that makes its replies up. The pool outlives its handlers.
Task<Result<Reply>> answer_large(const Pool* pool, Request request) {
  Result<std::uint32_t> length = wanted_bytes(request.header(), request.body());
  if (!length) co_return std::unexpected(length.error());
  if (*length <= kInlineReply.size()) co_return Reply{Bytes{kInlineReply}.first(*length)};
  Result<Buffer> buffer = co_await pool->allocate(*length);
  if (!buffer) co_return std::unexpected(buffer.error());
  std::ranges::fill(buffer->span(), std::byte{0});  // it may hold what others sent
  co_return Reply{pool->seal(std::move(*buffer))};
}

// The pools of this process. Several share their workers, so that one thread, or this one, turns them all.
class ServerSet {
 public:
  explicit ServerSet(const PerfServerOptions& options, const std::shared_ptr<Witness>& witness) {
    if (options.servers > 1) {
      workers_.emplace(value_or_fail(Workers::open({.threads = options.mode == Mode::threads ? options.workers : 0,
                                                    .idle = options.idle,
                                                    .subscriber = witness})));
    }
    pools_.reserve(options.servers);  // handlers point at them
    for (std::uint32_t i = 0; i < options.servers; ++i) add(options, witness, i);
  }

  bool poll() const { return workers_ ? workers_->poll() : pools_.front().poll(); }
  bool poll_for(std::chrono::nanoseconds at_most) const {
    return workers_ ? workers_->poll_for(at_most) : pools_.front().poll_for(at_most);
  }
  const std::vector<Pool>& pools() const { return pools_; }
  std::string addresses() const {
    std::string all;
    for (const Pool& pool : pools_) all += (all.empty() ? "" : ",") + pool.listen_address();
    return all;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  void add(const PerfServerOptions& options, const std::shared_ptr<Witness>& witness, std::uint32_t index) {
    Config config = to_config(options, witness);
    config.listen = next_port(options.listen, index);
    if (workers_) {
      config.on = &*workers_;
      config.limits.receive_buffers = kReceiveBuffersOfMany;
    }
    const Pool& pool = pools_.emplace_back(value_or_fail(Pool::open(std::move(config))));
    value_or_fail(pools_.back().serve_inline(kPerfMethod, answer));
    value_or_fail(pools_.back().serve(kPerfLargeMethod,
                                      [&pool](Request request) { return answer_large(&pool, std::move(request)); }));
    // Zeros that take no memory before they are used.
    memory_.emplace_back(static_cast<std::byte*>(std::calloc(1, options.largest_bytes)));
    if (memory_.back() == nullptr) fail("there is not enough memory for --largest");
    value_or_fail(
        pools_.back().place(kPerfPlacement, Placement::memory({memory_.back().get(), options.largest_bytes})));
  }

  // Port 0 stays 0. What makes no sense is left for the pool to say.
  static std::string next_port(const std::string& address, std::uint32_t index) {
    const std::size_t colon = address.rfind(':');
    const unsigned long port = colon == address.npos ? 0 : std::strtoul(address.c_str() + colon + 1, nullptr, 10);
    if (index == 0 || port == 0) return address;
    return fmt::format("{}:{}", address.substr(0, colon), port + index);
  }

  std::vector<std::unique_ptr<std::byte, Free>> memory_;  // outlives the pools
  std::optional<Workers> workers_;
  std::vector<Pool> pools_;
};

void spin_until(const ServerSet& servers, std::int64_t end_ns) {
  while (!stop_requested() && now_ns() < end_ns) {
    for (int turn = 0; turn < kTurnsPerLook; ++turn) servers.poll();
  }
}

void poll_until(const ServerSet& servers, std::int64_t end_ns) {
  int idle_turns = 0;
  while (!stop_requested()) {
    if (servers.poll()) {
      idle_turns = 0;
      continue;
    }
    if (++idle_turns < kIdleTurns) {
      std::this_thread::yield();
      continue;
    }
    std::int64_t left = end_ns - now_ns();
    if (left <= 0) return;
    servers.poll_for(std::min<std::chrono::nanoseconds>(kLongestSleep, std::chrono::nanoseconds(left)));
  }
}

void wait_until(std::int64_t end_ns) {
  while (!stop_requested() && now_ns() < end_ns) {
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(kLongestSleep, std::chrono::nanoseconds(end_ns - now_ns())));
  }
}

}  // namespace

void run_perf_server(const PerfServerOptions& options) {
  catch_stop_signals();
  auto witness = std::make_shared<Witness>();
  PerfServerOptions known = options;
  if (const Result<Address> listen = Address::parse(options.listen)) known.is_v6 = !listen->is_v4();
  ServerSet servers(known, witness);

  fmt::print("listening on {}, {}\n", servers.addresses(), aes_in_use(options.openssl));
  std::fflush(stdout);
  for (const std::string& sentence : witness->degradations()) note(sentence);

  std::int64_t end_ns = options.seconds > 0 ? now_ns() + static_cast<std::int64_t>(options.seconds * 1e9)
                                            : std::numeric_limits<std::int64_t>::max();
  if (options.mode == Mode::threads) {
    wait_until(end_ns);
  } else if (options.idle == Idle::spin) {
    spin_until(servers, end_ns);
  } else {
    poll_until(servers, end_ns);
  }

  Counters totals;
  for (const Pool& pool : servers.pools()) {
    for (const Counters& worker : pool.counters()) totals += worker;
  }
  // Clients that are cut off see their own errors; the server did as it was told.
  for (const Pool& pool : servers.pools()) (void)pool.close(std::chrono::milliseconds(500));
  fmt::print("answered {} requests; sent {} in {} packets\n", with_commas(totals.replies_sent),
             in_bytes(totals.bytes_sent), with_commas(totals.packets_sent));
}

}  // namespace weir::command
