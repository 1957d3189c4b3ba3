// Messages of more than 4 GiB, both ways. They take 9 GiB of memory and a while: only if WEIR_TEST_HUGE is set.
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::open;
using testing::server_config;

constexpr std::size_t kHuge = (std::size_t{4} << 30) + 5;

// A word in each page tells where it is; all others are zeros or what the memory held.
constexpr std::size_t kPage = 4096;
std::uint64_t word_at(std::size_t offset) { return offset * 77 + 1; }

Payload make_huge(const Pool& pool) {
  Buffer page = pool.allocate(kHuge).get().value();
  const auto span = page.span();
  for (std::size_t i = 0; i + 8 <= span.size(); i += kPage) {
    const std::uint64_t word = word_at(i);
    std::memcpy(span.data() + i, &word, sizeof word);
  }
  return pool.seal(std::move(page));
}

bool is_huge(Bytes bytes) {
  if (bytes.size() != kHuge) return false;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += kPage) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    if (word != word_at(i)) return false;
  }
  return true;
}

TEST(LargeHuge, MoreThanFourGigabytesTravelInOneMessage) {
  if (std::getenv("WEIR_TEST_HUGE") == nullptr) GTEST_SKIP() << "set WEIR_TEST_HUGE=1 to run it";
  Config listening = server_config(1), calling = client_config(1);
  Limits& limits = listening.limits;
  limits.message_bytes = limits.large_request_bytes = limits.large_reply_bytes = std::size_t{5} << 30;
  limits.nested_large_request_bytes = limits.large_bytes_per_peer = limits.buffer_bytes = std::size_t{5} << 30;
  calling.limits = limits;
  Pool server = open(listening), client = open(calling);
  ASSERT_TRUE(server.serve("look", [](Request r) { return Reply{is_huge(r.body()) ? "same" : "different"}; }));
  ASSERT_TRUE(server.serve("give", [&](Request) { return Reply{make_huge(server)}; }));
  const Peer to = client.peer(server.listen_address());
  EXPECT_EQ(testing::text_of(to.unary("look", make_huge(client), {.deadline = 300s}).get()), "same");
  const Result<Reply> reply = to.unary("give", "", {.deadline = 300s}).get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_huge(reply->body()));
}

}  // namespace
}  // namespace weir
