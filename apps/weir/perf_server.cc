// `weir perf server`: answers each request with as many bytes as it asks for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <thread>

#include "apps/weir/format.h"
#include "apps/weir/perf_options.h"
#include "apps/weir/process.h"
#include "base/address.h"
#include "weir/pool.h"

namespace weir::command {

namespace {

constexpr std::array<std::byte, kMaxBodyBytes> kReplyBytes{};

// A signal ends a sleep, but one that comes just before it does not.
constexpr std::chrono::milliseconds kLongestSleep{100};
// Turns without work before an adaptive loop sleeps: some tens of microseconds, the time that a busy client on
// another core takes for its next packet.
constexpr int kIdleTurns = 64;
// A spinning loop looks at the clock this often.
constexpr int kTurnsPerLook = 256;

void answer(InlineRequest& request) {
  Bytes wanted = request.header().size() >= kReplyLengthBytes ? request.header() : request.body();
  std::uint32_t length = 0;
  if (wanted.size() < kReplyLengthBytes) {
    request.fail(Code::invalid_argument, "a perf request says in its first four bytes how long the reply shall be");
    return;
  }
  for (std::size_t i = kReplyLengthBytes; i-- > 0;) length = length << 8 | std::to_integer<std::uint32_t>(wanted[i]);
  if (length > kReplyBytes.size()) {
    request.fail(Code::too_large, "a perf reply of this size does not fit into one message");
    return;
  }
  request.reply(Bytes{kReplyBytes}.first(length));
}

void spin_until(const Pool& pool, std::int64_t end_ns) {
  while (!stop_requested() && now_ns() < end_ns) {
    for (int turn = 0; turn < kTurnsPerLook; ++turn) pool.poll();
  }
}

void poll_until(const Pool& pool, std::int64_t end_ns) {
  int idle_turns = 0;
  while (!stop_requested()) {
    if (pool.poll()) {
      idle_turns = 0;
      continue;
    }
    if (++idle_turns < kIdleTurns) {
      std::this_thread::yield();
      continue;
    }
    std::int64_t left = end_ns - now_ns();
    if (left <= 0) return;
    pool.poll_for(std::min<std::chrono::nanoseconds>(kLongestSleep, std::chrono::nanoseconds(left)));
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
  Config config = to_config(known, witness);
  config.listen = options.listen;
  Pool pool = value_or_fail(Pool::open(std::move(config)));
  value_or_fail(pool.serve_inline(kPerfMethod, answer));

  fmt::print("listening on {}, {}\n", pool.listen_address(), aes_in_use(options.openssl));
  std::fflush(stdout);
  for (const std::string& sentence : witness->degradations()) note(sentence);

  std::int64_t end_ns = options.seconds > 0 ? now_ns() + static_cast<std::int64_t>(options.seconds * 1e9)
                                            : std::numeric_limits<std::int64_t>::max();
  if (options.mode == Mode::threads) {
    wait_until(end_ns);
  } else if (options.idle == Idle::spin) {
    spin_until(pool, end_ns);
  } else {
    poll_until(pool, end_ns);
  }

  Counters totals;
  for (const Counters& worker : pool.counters()) totals += worker;
  // Clients that are cut off see their own errors; the server did as it was told.
  (void)pool.close(std::chrono::milliseconds(500));
  fmt::print("answered {} requests; sent {} in {} packets\n", with_commas(totals.replies_sent),
             in_bytes(totals.bytes_sent), with_commas(totals.packets_sent));
}

}  // namespace weir::command
