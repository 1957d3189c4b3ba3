// Whoever stops reading stops its senders, within the bytes that pool.limits() prints.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "pool/bulk_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::kMiB;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::resident_bytes;
using testing::server_config;
using testing::total;

// For what is not messages: receive buffers and records, also of the hundred senders, which are in this process too.
constexpr std::size_t kSlack = 48 * kMiB;

std::size_t printed(const Pool& pool, std::string_view name) {
  const std::string text = pool.limits();
  const std::size_t at = text.find(std::string(name) + ": ");
  EXPECT_NE(at, std::string::npos) << text;
  return std::stoull(text.substr(at + name.size() + 2));
}

TEST(Backpressure, AHundredSendersAgainstAStuckReaderStayUnderTheBoundAndAllComplete) {
  constexpr std::size_t kSenders = 100, kEach = 4;
  Limits few;
  few.message_bytes = kMiB;
  few.large_request_bytes = few.nested_large_request_bytes = few.large_reply_bytes = few.large_bytes_per_peer =
      16 * kMiB;
  Config listening = server_config(1);
  listening.limits = few;
  Pool server = open(listening);
  // A reader that does not answer, on the executor's one thread; what comes behind it waits where it landed.
  std::atomic<bool> is_stuck{true};
  ASSERT_TRUE(server.serve("read", [&](Request request) {
    while (is_stuck) std::this_thread::sleep_for(1ms);
    return Reply{std::to_string(request.body().size())};
  }));
  Workers workers = Workers::open({.threads = 1}).value();
  std::vector<Pool> clients;
  std::vector<Payload> payloads;
  for (std::size_t i = 0; i < kSenders; ++i) {
    Config calling = client_config(1);
    calling.on = &workers;
    calling.executor_threads = 0;
    calling.name = "client-" + std::to_string(i);
    clients.push_back(open(calling));
    payloads.push_back(payload_of(clients.back(), pattern(kMiB, i)));
  }
  for (const Pool& client : clients) ASSERT_TRUE(client.peer(server.listen_address()).ready().get());
  const std::size_t before = resident_bytes();
  std::vector<Call> calls;
  for (std::size_t i = 0; i < kSenders * kEach; ++i) {
    const Peer to = clients[i % kSenders].peer(server.listen_address());
    calls.push_back(to.unary("read", payloads[i % kSenders], {.deadline = 250s}));
  }
  const std::size_t bound = printed(server, "large_request_bytes per worker");
  EXPECT_EQ(bound, 16 * kMiB);
  // Nothing is let go of, so what has arrived is what is held.
  const std::uint64_t whole = bound / (kMiB + kMiB / 16);
  await([&] { return total(server).large_messages_received >= whole && total(server).regions_exhausted >= kSenders; });
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(5ms);
    const Counters counters = total(server);
    EXPECT_LE(counters.large_messages_received * kMiB, bound);
    EXPECT_EQ(counters.replies_sent, 0u);
    if (testing::kHasOwnMemoryOnly) {
      EXPECT_LT(resident_bytes(), before + bound + kSlack);
    }
  }
  is_stuck = false;
  for (Call& call : calls) {
    const Result<Reply> reply = call.get();
    ASSERT_TRUE(reply) << reply.error().to_string();
    EXPECT_EQ(reply->text(), std::to_string(kMiB));
  }
}

TEST(Backpressure, ACallerThatTakesNoRepliesStopsAHundredServersAndThenGetsThemAll) {
  constexpr std::size_t kServers = 100, kEach = 4;
  Workers workers = Workers::open({.threads = 1}).value();
  std::vector<Pool> servers;
  std::vector<Payload> payloads;
  for (std::size_t i = 0; i < kServers; ++i) {
    Config listening = server_config(1);
    listening.on = &workers;
    listening.executor_threads = 0;
    listening.name = "server-" + std::to_string(i);
    servers.push_back(open(listening));
    payloads.push_back(payload_of(servers.back(), pattern(kMiB, i)));
    ASSERT_TRUE(servers.back().serve("read", [payload = payloads.back()](Request) { return Reply{payload}; }));
  }
  Config calling = client_config(1);
  calling.limits.message_bytes = kMiB;
  calling.limits.large_reply_bytes = calling.limits.large_bytes_per_peer = 16 * kMiB;
  Pool client = open(calling);
  for (const Pool& server : servers) ASSERT_TRUE(client.peer(server.listen_address()).ready().get());
  const std::size_t before = resident_bytes();
  std::vector<Call> calls;
  for (std::size_t i = 0; i < kServers * kEach; ++i) {
    calls.push_back(client.peer(servers[i % kServers].listen_address()).unary("read", "", {.deadline = 250s}));
  }
  const std::size_t bound = printed(client, "large_reply_bytes per worker");
  EXPECT_EQ(bound, 16 * kMiB);
  const std::uint64_t whole = bound / (kMiB + kMiB / 16);
  await([&] { return total(client).large_messages_received >= whole && total(client).regions_exhausted >= kServers; });
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(5ms);
    EXPECT_LE(total(client).large_messages_received * kMiB, bound);
    if (testing::kHasOwnMemoryOnly) {
      EXPECT_LT(resident_bytes(), before + bound + kSlack);
    }
  }
  // Whichever came first: they are taken as they are there, and dropped, which makes room for others.
  std::atomic<std::size_t> right{0}, wrong{0};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    std::move(calls[i]).then([&, i](const Result<Reply>& reply) {
      const bool is_right = reply && reply->text() == pattern(kMiB, i % kServers);
      ++(is_right ? right : wrong);
    });
  }
  await([&] { return right + wrong == kServers * kEach; });
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace weir
