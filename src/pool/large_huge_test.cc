// Messages of more than 4 GiB, both ways; in one piece they take 8.5 GiB of memory, in pieces 5.
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "pool/huge_testing.h"
#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::kHuge;
using testing::open;
using testing::server_config;

// A word in each page tells where it is, and one at the very end; all others are what the memory held.
constexpr std::size_t kPage = 4096;
std::uint64_t word_at(std::size_t offset) { return offset * 77 + 1; }

void fill(std::span<std::byte> span, std::size_t offset) {
  for (std::size_t i = 0; i + 8 <= span.size(); i += kPage) {
    const std::uint64_t word = word_at(offset + i);
    std::memcpy(span.data() + i, &word, sizeof word);
  }
  if (!span.empty()) span.back() = static_cast<std::byte>((offset + span.size()) * 13);
}

// `piece_bytes` is a whole number of pages and of records, or 0 for one piece.
Payload make_huge(const Pool& pool, std::size_t piece_bytes) {
  Buffer buffer = pool.allocate(kHuge, {.piece_bytes = piece_bytes}).get().value();
  std::size_t offset = 0;
  for (const auto& span : buffer.spans()) {
    fill(span, offset);
    offset += span.size();
  }
  return pool.seal(std::move(buffer));
}

bool is_huge(Bytes bytes) {
  if (bytes.size() != kHuge || bytes.back() != static_cast<std::byte>(kHuge * 13)) return false;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += kPage) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    if (word != word_at(i)) return false;
  }
  return true;
}

constexpr std::size_t kOnePiece = 0;
constexpr std::size_t kPieceBytes = 1024 * testing::kRecord;  // so large that the heap gives each back to the system

struct HugePair {
  explicit HugePair(std::size_t piece_bytes) {
    Config listening = server_config(1), calling = client_config(1);
    Limits& limits = listening.limits;
    limits.message_bytes = limits.large_request_bytes = limits.large_reply_bytes = std::size_t{5} << 30;
    limits.nested_large_request_bytes = limits.large_bytes_per_peer = limits.buffer_bytes = std::size_t{5} << 30;
    calling.limits = limits;
    listening.buffers.keep_bytes = calling.buffers.keep_bytes = 0;
    server.emplace(open(listening));
    client.emplace(open(calling));
    EXPECT_TRUE(server->serve("look", [](Request r) { return Reply{is_huge(r.body()) ? "same" : "different"}; }));
    EXPECT_TRUE(server->serve("give", [this, piece_bytes](Request) { return Reply{make_huge(*server, piece_bytes)}; }));
  }
  Peer to() const { return client->peer(server->listen_address()); }

  std::optional<Pool> server, client;
};

void expect_huge_both_ways(std::size_t piece_bytes) {
  const testing::OwnMemoryWatch memory;
  HugePair pair(piece_bytes);
  Payload payload = make_huge(*pair.client, piece_bytes);
  EXPECT_EQ(testing::text_of(pair.to().unary("look", std::move(payload), {.deadline = 300s}).get()), "same");
  const Result<Reply> reply = pair.to().unary("give", "", {.deadline = 300s}).get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_huge(reply->body()));
  std::printf("most memory of its own: %zu MiB\n", memory.most_bytes() >> 20);
}

TEST(LargeHuge, MoreThanFourGigabytesTravelInOneMessageOfOnePiece) {
  if (!testing::are_huge_tests_wanted()) GTEST_SKIP() << testing::kHowToWant;
  expect_huge_both_ways(kOnePiece);
}

TEST(LargeHuge, MoreThanFourGigabytesTravelInOneMessageOfPieces) {
  if (!testing::are_huge_tests_wanted()) GTEST_SKIP() << testing::kHowToWant;
  expect_huge_both_ways(kPieceBytes);
}

}  // namespace
}  // namespace weir
