// put() and get(): bytes straight into a peer's memory or file, and back.
#include <atomic>
#include <thread>
#include <utility>

#include "buffer/work.h"
#include "pool/bulk_client.h"
#include "pool/bulk_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using pool::kPartBytes;
using testing::bytes_of;
using testing::client_config;
using testing::error_of;
using testing::is_same;
using testing::kMiB;
using testing::kRecord;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;
using testing::TemporaryFile;

using Pair = testing::BulkPair;

constexpr std::size_t kSizes[] = {1,           100,        kRecord - 1,    kRecord,
                                  kRecord + 1, kPartBytes, kPartBytes + 1, 9 * kPartBytes + 12'345};

TEST(Bulk, WhatIsPutIntoMemoryIsThereAndNothingElse) {
  Pair pair;
  for (const std::size_t size : kSizes) {
    std::string memory(size + 200, 'o');
    ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
    const std::string text = pattern(size, size);
    const Result<PutReport> put = pair.to().put("memory", payload_of(*pair.client, text), {.offset = 100}).get();
    ASSERT_TRUE(put) << error_of(put);
    EXPECT_EQ(put->acknowledged_bytes, size);
    ASSERT_TRUE(pair.server->unplace("memory"));
    EXPECT_TRUE(is_same(memory.substr(100, size), text)) << size;
    EXPECT_EQ(memory.substr(0, 100), std::string(100, 'o'));
    EXPECT_EQ(memory.substr(100 + size), std::string(100, 'o'));
  }
}

TEST(Bulk, WhatIsPutIntoAFileIsThereAndWhatWasThereStays) {
  Pair pair;
  for (const std::size_t size : kSizes) {
    const TemporaryFile file("0123456789");
    ASSERT_TRUE(pair.server->place("file", Placement::file(file.path())));
    const std::string text = pattern(size, size);
    const Result<PutReport> put =
        pair.to().put("file", payload_of(*pair.client, text), {.offset = 5, .sync = size % 2 == 0}).get();
    ASSERT_TRUE(put) << error_of(put);
    ASSERT_TRUE(pair.server->unplace("file"));
    EXPECT_TRUE(
        is_same(file.read(), "01234" + text + std::string("0123456789").substr(std::min<std::size_t>(5 + size, 10))))
        << size;
  }
}

TEST(Bulk, GetsBringItBackFromMemoryAndFilesIntoMemoryAndFiles) {
  Pair pair;
  for (const std::size_t size : kSizes) {
    std::string text = pattern(size + 7, size);
    const TemporaryFile file(text), target;
    ASSERT_TRUE(pair.server->place("memory", Placement::constant(as_bytes(text))));
    ASSERT_TRUE(pair.server->place("file", Placement::file(file.path(), {.access = Access::get_only})));
    for (const char* name : {"memory", "file"}) {
      std::string here(size, '\0');
      const Result<GetReport> got = pair.to().get(name, into(bytes_of(here)), {.offset = 7}).get();
      ASSERT_TRUE(got) << error_of(got);
      EXPECT_EQ(got->acknowledged_bytes, size);
      EXPECT_TRUE(is_same(here, std::string_view(text).substr(7))) << name << " " << size;
      target.write("abc");
      const Result<GetReport> filed = pair.to().get(name, into_file(target.path(), 3), {.offset = 7}).get();
      ASSERT_TRUE(filed) << error_of(filed);
      EXPECT_TRUE(is_same(target.read(), "abc" + text.substr(7))) << name << " " << size;
    }
    ASSERT_TRUE(pair.server->unplace("memory"));
    ASSERT_TRUE(pair.server->unplace("file"));
  }
}

TEST(Bulk, CanBeAwaitedWithEveryOption) {
  Pair pair;
  std::string memory(8 * kMiB, '\0');
  ASSERT_TRUE(pair.server->place("shard-7", Placement::memory(bytes_of(memory))));
  const std::string text = pattern(4 * kMiB);
  const Payload payload = payload_of(*pair.client, text);
  std::uint64_t told = 0;
  const Progress progress{.function =
                              [](void* context, std::uint64_t bytes, std::uint64_t of) {
                                EXPECT_LT(*static_cast<std::uint64_t*>(context), bytes);
                                EXPECT_EQ(of, 4 * kMiB);
                                *static_cast<std::uint64_t*>(context) = bytes;
                              },
                          .context = &told};
  std::string here(4 * kMiB, '\0');
  const Peer db = pair.to();
  const auto task = [&]() -> Task<int> {
    auto put = co_await db.put("shard-7", payload,
                               {.offset = 4096, .priority = 5, .deadline = 60s, .header = "h", .progress = progress});
    if (!put) ADD_FAILURE() << error_of(put);
    EXPECT_EQ(std::exchange(told, 0), 4 * kMiB);
    auto got = co_await db.get("shard-7", weir::into(bytes_of(here)),
                               {.offset = 4096, .priority = 5, .deadline = 60s, .header = "h", .progress = progress});
    if (!got) ADD_FAILURE() << error_of(got);
    EXPECT_EQ(told, 4 * kMiB);
    co_return 1;
  };
  EXPECT_EQ(pair.client->run(task()), 1);
  EXPECT_TRUE(is_same(here, text));
}

TEST(Bulk, AGuardSeesTheHeaderWithEveryPartAndMayRefuseByIt) {
  Pair pair;
  std::string memory(3 * kPartBytes, 'o');
  std::atomic<int> puts = 0, gets = 0;
  ASSERT_TRUE(pair.server->place(
      "shard", Placement::memory(bytes_of(memory)).guard([&](const BulkRequest& request) -> Result<void> {
        const std::string_view header(reinterpret_cast<const char*>(request.header.data()), request.header.size());
        if (header != (request.is_put ? "may put" : "may get")) {
          return std::unexpected(Error(Code::application, "not with " + std::string(header)));
        }
        ++(request.is_put ? puts : gets);
        return {};
      })));
  const std::string text = pattern(memory.size());
  const Payload payload = payload_of(*pair.client, text);
  std::string here(memory.size(), '\0');
  for (const char* wrong : {"", "may", "may putt"}) {
    const Result<PutReport> put = pair.to().put("shard", payload, {.header = wrong}).get();
    ASSERT_FALSE(put) << wrong;
    EXPECT_EQ(put.error().code(), Code::application) << error_of(put);
    EXPECT_NE(put.error().message().find("not with " + std::string(wrong)), std::string::npos) << error_of(put);
    const Result<GetReport> got = pair.to().get("shard", into(bytes_of(here)), {.header = wrong}).get();
    ASSERT_FALSE(got) << wrong;
    EXPECT_EQ(got.error().code(), Code::application) << error_of(got);
  }
  EXPECT_EQ(puts + gets, 0);
  EXPECT_TRUE(is_same(memory, std::string(memory.size(), 'o')));
  const Result<PutReport> put = pair.to().put("shard", payload, {.header = "may put"}).get();
  EXPECT_TRUE(put) << error_of(put);
  EXPECT_GE(puts, 3);
  const Result<GetReport> got = pair.to().get("shard", into(bytes_of(here)), {.header = "may get"}).get();
  EXPECT_TRUE(got) << error_of(got);
  EXPECT_GE(gets, 3);
  EXPECT_TRUE(is_same(here, text));
}

TEST(Bulk, WithoutThreadsOnEitherSide) {
  for (const auto& [server_workers, client_workers] : {std::pair{0, 1}, std::pair{1, 0}, std::pair{0, 0}}) {
    Pair pair(server_workers, client_workers);
    std::atomic<bool> running{true};
    std::string memory(3 * kMiB, '\0');
    ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
    std::thread turner([&] {
      while (running) pair.server->poll_for(1ms);
    });
    const std::string text = pattern(3 * kMiB);
    const Result<PutReport> put = pair.to().put("memory", payload_of(*pair.client, text)).get();
    EXPECT_TRUE(put) << error_of(put);
    std::string here(3 * kMiB, '\0');
    const Result<GetReport> got = pair.to().get("memory", into(bytes_of(here))).get();
    EXPECT_TRUE(got) << error_of(got);
    EXPECT_TRUE(is_same(here, text));
    running = false;
    turner.join();
  }
}

TEST(Bulk, HandlersMayPutAndGet) {
  Pair pair;
  Pool middle = open(server_config(1));
  std::string memory(kMiB, '\0');
  ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
  const std::string text = pattern(kMiB);
  const Payload payload = payload_of(middle, text);
  ASSERT_TRUE(middle.serve("copy", [&](Request) -> Task<Result<Reply>> {
    const Peer next = middle.peer(pair.server->listen_address());
    auto put = co_await next.put("memory", payload);
    if (!put) co_return std::unexpected(put.error());
    std::string here(kMiB, '\0');
    auto got = co_await next.get("memory", into(bytes_of(here)));
    if (!got) co_return std::unexpected(got.error());
    co_return Reply{here == text ? "same" : "different"};
  }));
  EXPECT_EQ(testing::text_of(pair.client->peer(middle.listen_address()).unary("copy", "").get()), "same");
}

TEST(Bulk, AnEmptyPutIsAskedForAndWritesNothing) {
  Pair pair;
  std::string memory(10, 'o');
  ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
  EXPECT_TRUE(pair.to().put("memory", payload_of(*pair.client, "")).get());
  EXPECT_FALSE(pair.to().put("elsewhere", payload_of(*pair.client, "")).get());
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// Of both pools, with receive buffers and records.
constexpr std::size_t kMostBytes = 48 * kMiB;

TEST(Bulk, AQuarterOfAGigabytePassesThroughEightMegabytes) {
  Limits few;
  few.message_bytes = 4 * kMiB;
  few.large_request_bytes = few.large_reply_bytes = few.nested_large_request_bytes = few.large_bytes_per_peer =
      8 * kMiB;
  Config listening = server_config(1);
  listening.limits = few;
  listening.limits.buffer_bytes = 8 * kMiB;
  Config calling = client_config(1);
  calling.limits = few;
  Pool server = open(listening), client = open(calling);
  const std::string text = pattern(256 * kMiB);
  const TemporaryFile file, back;
  ASSERT_TRUE(server.place("file", Placement::file(file.path())));
  const Peer to = client.peer(server.listen_address());
  const Payload payload = payload_of(client, text);
  ASSERT_TRUE(to.ready().get());
  testing::MemoryWatch watch;
  const Result<PutReport> put = to.put("file", payload, {.deadline = 200s}).get();
  ASSERT_TRUE(put) << error_of(put);
  const Result<GetReport> got = to.get("file", into_file(back.path()), {.deadline = 200s}).get();
  ASSERT_TRUE(got) << error_of(got);
  if (testing::kHasOwnMemoryOnly) {
    EXPECT_LT(watch.most_bytes(), kMostBytes);
  }
  EXPECT_TRUE(is_same(back.read(), text));
}

TEST(Bulk, PartsFitTheSmallerSidesLimit) {
  Limits small;
  small.message_bytes = kMiB;
  Config listening = server_config(1);
  listening.limits = small;
  Pool server = open(listening), client = open(client_config(1));
  std::string memory(5 * kMiB, '\0'), here(5 * kMiB, '\0');
  ASSERT_TRUE(server.place("memory", Placement::memory(bytes_of(memory))));
  const std::string text = pattern(5 * kMiB);
  const Peer to = client.peer(server.listen_address());
  const Result<PutReport> put = to.put("memory", payload_of(client, text)).get();
  ASSERT_TRUE(put) << error_of(put);
  const Result<GetReport> got = to.get("memory", into(bytes_of(here))).get();
  ASSERT_TRUE(got) << error_of(got);
  EXPECT_TRUE(is_same(here, text));
}

TEST(Bulk, APutIsSealedOnceAndAGetIsCopiedByNobody) {
  Pair pair;
  std::string memory(8 * kMiB, '\0'), here(8 * kMiB, '\0');
  ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
  const Payload payload = payload_of(*pair.client, pattern(8 * kMiB));
  const auto sealed = [] { return buffer::work.sealed_bytes.load(); };
  const auto copied = [] { return buffer::work.copied_bytes.load(); };
  const std::uint64_t sealed_before = sealed(), copied_before = copied();
  ASSERT_TRUE(pair.to().put("memory", payload).get());
  EXPECT_EQ(sealed() - sealed_before, 0u) << "it was sealed before";
  EXPECT_EQ(copied() - copied_before, 8 * kMiB) << "from where it was opened, for nobody must see what is not verified";
  ASSERT_TRUE(pair.to().get("memory", into(bytes_of(here))).get());
  EXPECT_EQ(sealed() - sealed_before, 8 * kMiB) << "by the server";
  EXPECT_EQ(copied() - copied_before, 8 * kMiB);
}

TEST(Bulk, APayloadOfManyPiecesArrivesWhole) {
  Pair pair;
  std::string memory(12 * kPartBytes, '\0');
  ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
  Buffer page = pair.client->allocate(12 * kPartBytes, {.worker = 0, .piece_bytes = kRecord}).get().value();
  const std::string text = pattern(12 * kPartBytes);
  std::size_t at = 0;
  for (const std::span<std::byte> piece : page.spans()) {
    std::copy_n(as_bytes(text).data() + at, piece.size(), piece.data());
    at += piece.size();
  }
  const Result<PutReport> put = pair.to().put("memory", pair.client->seal(std::move(page))).get();
  ASSERT_TRUE(put) << error_of(put);
  ASSERT_TRUE(pair.server->unplace("memory"));
  EXPECT_TRUE(is_same(memory, text));
}

}  // namespace
}  // namespace weir
