// Whoever stops reading stops its senders, within the bytes that pool.limits() prints.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "pool/bulk_testing.h"
#include "pool/child_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::bytes_of;
using testing::Child;
using testing::client_config;
using testing::kMiB;
using testing::Lines;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::resident_bytes;
using testing::server_config;
using testing::total;

// The other side, a hundred pools of it, is another process. What is left of ours: tags and tables, receive buffers, of
// which it has so few, and what the heap keeps for each thread.
constexpr std::uint32_t kReceiveBuffers = 64;
constexpr std::size_t kSlack = 12 * kMiB;
constexpr std::size_t kPools = 100, kEach = 4;
constexpr std::size_t kBody = 17 * testing::kRecord;  // whole records, so that a put of it is one message

std::size_t printed(const Pool& pool, std::string_view name) {
  const std::string text = pool.limits();
  const std::size_t at = text.find(std::string(name) + ": ");
  EXPECT_NE(at, std::string::npos) << text;
  return std::stoull(text.substr(at + name.size() + 2));
}

Config one_of_many(Config config, std::size_t number, Workers& workers) {
  config.on = &workers;
  config.executor_threads = 0;
  config.name += "-" + std::to_string(number);
  return config;
}

// Hears an address and whether to call or to put; then, a hundred pools of it, everybody at once.
void send_from_many(Lines& lines) {
  const std::string address = lines.hear();
  const bool is_put = lines.hear() == "put";
  Workers workers = Workers::open({.threads = 1}).value();
  std::vector<Pool> clients;
  std::vector<Payload> payloads;
  for (std::size_t i = 0; i < kPools; ++i) {
    clients.push_back(open(one_of_many(client_config(1), i, workers)));
    payloads.push_back(payload_of(clients.back(), pattern(kBody, i)));
  }
  for (const Pool& client : clients) EXPECT_TRUE(client.peer(address).ready().get());
  lines.say("ready");
  static_cast<void>(lines.hear());
  std::vector<Call> calls;
  std::size_t right = 0;
  if (is_put) {
    std::size_t ended = 0;
    const auto put = [&](std::size_t number) -> Task<void> {
      const Peer to = clients[number % kPools].peer(address);
      const auto done = co_await to.put("memory", payloads[number % kPools], {.deadline = 250s});
      right += done.has_value();
      ++ended;
    };
    for (std::size_t i = 0; i < kPools * kEach; ++i) clients[0].spawn(put(i));
    while (ended < kPools * kEach) clients[0].poll_for(1ms);
  } else {
    for (std::size_t i = 0; i < kPools * kEach; ++i) {
      const Peer to = clients[i % kPools].peer(address);
      calls.push_back(to.unary("read", payloads[i % kPools], {.deadline = 250s}));
    }
    for (Call& call : calls) right += testing::text_of(call.get()) == std::to_string(kBody);
  }
  lines.say(std::to_string(right));
}

// A hundred servers, each of which gives a payload of its own.
void give_from_many(Lines& lines) {
  auto* workers = new Workers(Workers::open({.threads = 1}).value());
  auto* servers = new std::vector<Pool>;
  for (std::size_t i = 0; i < kPools; ++i) {
    servers->push_back(open(one_of_many(server_config(1), i, *workers)));
    const Payload payload = payload_of(servers->back(), pattern(kBody, i));
    EXPECT_TRUE(servers->back().serve("read", [payload](Request) { return Reply{payload}; }));
    lines.say(servers->back().listen_address());
  }
}

Limits few_bytes() {
  Limits few;
  few.message_bytes = kMiB;
  few.large_request_bytes = few.nested_large_request_bytes = few.large_reply_bytes = few.large_bytes_per_peer =
      16 * kMiB;
  few.receive_buffers = kReceiveBuffers;
  return few;
}

// All that may come has come, and for a while nothing changes.
void expect_bounded(const Pool& pool, std::size_t bound, std::size_t before, std::size_t most_replies) {
  const std::uint64_t whole = bound / (kBody + kBody / 16);
  await([&] { return total(pool).large_messages_received >= whole && total(pool).regions_exhausted >= kPools; });
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(5ms);
    // Nothing is let go of, so what has arrived is what is held.
    EXPECT_LE(total(pool).large_messages_received * kBody, bound);
    EXPECT_LE(total(pool).replies_sent, most_replies);
    if (testing::kHasOwnMemoryOnly) {
      EXPECT_LT(resident_bytes(), before + bound + kSlack);
    }
  }
}

TEST(Backpressure, AHundredSendersAgainstAStuckReaderStayUnderTheBoundAndAllComplete) {
  for (const bool is_put : {false, true}) {
    Child senders(send_from_many);
    Config listening = server_config(1);
    listening.limits = few_bytes();
    // Some threads are left for the questions that puts begin with.
    listening.executor_threads = is_put ? 32 : 1;
    // A reader that does not go on; what comes behind it waits where it landed.
    std::atomic<bool> is_stuck{true};
    std::string memory(kBody, '\0');  // stays until the pool has gone
    Pool server = open(listening);
    ASSERT_TRUE(server.serve("read", [&](Request request) {
      await([&] { return !is_stuck; });
      return Reply{std::to_string(request.body().size())};
    }));
    ASSERT_TRUE(server.place("memory", Placement::memory(bytes_of(memory)).tee([&](std::uint64_t, Bytes) {
      await([&] { return !is_stuck; });
    })));
    senders.lines().say(server.listen_address());
    senders.lines().say(is_put ? "put" : "call");
    ASSERT_EQ(senders.lines().hear(), "ready");
    const std::size_t bound = printed(server, "large_request_bytes per worker");
    EXPECT_EQ(bound, 16 * kMiB);
    const std::size_t before = resident_bytes();
    senders.lines().say("go");
    expect_bounded(server, bound, before, is_put ? kPools * kEach : 0);  // a put asks before it sends
    is_stuck = false;
    EXPECT_EQ(senders.lines().hear(), std::to_string(kPools * kEach)) << (is_put ? "put" : "call");
  }
}

TEST(Backpressure, ACallerThatTakesNoRepliesStopsAHundredServersAndThenGetsThemAll) {
  Child givers(give_from_many);
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < kPools; ++i) addresses.push_back(givers.lines().hear());
  Config calling = client_config(1);
  calling.limits = few_bytes();
  Pool client = open(calling);
  for (const std::string& address : addresses) ASSERT_TRUE(client.peer(address).ready().get());
  const std::size_t bound = printed(client, "large_reply_bytes per worker");
  EXPECT_EQ(bound, 16 * kMiB);
  const std::size_t before = resident_bytes();
  std::vector<Call> calls;
  for (std::size_t i = 0; i < kPools * kEach; ++i) {
    calls.push_back(client.peer(addresses[i % kPools]).unary("read", "", {.deadline = 250s}));
  }
  expect_bounded(client, bound, before, 0);
  // Whichever came first: they are taken as they are there, and dropped, which makes room for others.
  std::atomic<std::size_t> right{0}, wrong{0};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    std::move(calls[i]).then([&, i](const Result<Reply>& reply) {
      const bool is_right = reply && reply->text() == pattern(kBody, i % kPools);
      ++(is_right ? right : wrong);
    });
  }
  await([&] { return right + wrong == kPools * kEach; });
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace weir
