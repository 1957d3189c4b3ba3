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
using testing::server_config;
using testing::total;

// Sanitizers have memory of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsPlain = false;
#else
constexpr bool kIsPlain = true;
#endif
// For what is not messages: receive buffers and records, also of the hundred senders, which are in this process too.
constexpr std::size_t kSlack = 48 * kMiB;

// Of this process, by the system's own count.
std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long pages = 0, resident = 0;
  EXPECT_EQ(std::fscanf(file, "%lu %lu", &pages, &resident), 2);
  std::fclose(file);
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

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
    if (kIsPlain) {
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

}  // namespace
}  // namespace weir
