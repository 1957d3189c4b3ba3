// The lines that the documentation shows about bulk and broadcast, compiled and run.
#include <thread>

#include "pool/bulk_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;

static_assert(std::is_trivially_destructible_v<PutOptions> && std::is_trivially_destructible_v<GetOptions>);
static_assert(std::is_trivially_destructible_v<BroadcastOptions> && std::is_trivially_destructible_v<GetTarget>);

struct Page {
  weir::Pool& pool;
  std::vector<weir::Peer> replicas;
  weir::Peer db = replicas[0];
  std::span<std::byte> local_span;
  std::string copy;

  Task<int> run() {
    weir::Result<weir::Buffer> room = co_await pool.allocate(1 << 20);
    if (!room) co_return 1;
    weir::Buffer page = *std::move(room);
    std::fill(page.span().begin(), page.span().end(), std::byte{7});
    weir::Payload payload = pool.seal(std::move(page));

    weir::PutReport report;
    auto put = co_await db.put("snapshot", payload, {.offset = 0, .report = &report});
    if (!put) put = co_await db.put("snapshot", payload, {.resume_at = report.acknowledged_bytes});
    if (!put) co_return 2;
    auto got = co_await db.get("shard-7", weir::into(local_span), {.offset = 4096});
    if (!got) co_return 3;
    auto copied = co_await db.get("snapshot", weir::into_file(copy));
    if (!copied) co_return 4;

    auto outcome = co_await pool.broadcast(replicas, "append", payload, {.quorum = 2});
    if (!outcome.reached()) co_return 5;
    auto all = co_await pool.broadcast(replicas, "append", payload, {.header = std::string(100, 'h')});
    if (all.replies() != 2) co_return 6;
    auto given = co_await db.put("snapshot", std::move(payload), {.header = std::string(100, 'h'), .sync = true});
    if (!given) co_return 7;
    co_return 0;
  }
};

void run_the_page(int server_workers, int client_workers) {
  weir::Pool pool = testing::open(testing::server_config(server_workers));
  std::string memory(1 << 20, 'm'), cache(100, 'c'), local((1 << 20) - 4096, '\0');
  const testing::TemporaryFile file, copy;
  ASSERT_TRUE(pool.place("shard-7", weir::Placement::memory(testing::bytes_of(memory))));
  ASSERT_TRUE(
      pool.place("snapshot", weir::Placement::file(file.path(), {.create = true}).tee(testing::bytes_of(cache))));
  ASSERT_TRUE(pool.serve("append", [](weir::Request) { return weir::Reply("done"); }));
  std::atomic<bool> running{true};
  std::thread turner([&] {
    while (running) pool.poll_for(1ms);
  });
  weir::Pool client = testing::open(testing::client_config(client_workers));
  std::vector<weir::Peer> replicas(2, client.peer(pool.listen_address()));
  Page page{.pool = client, .replicas = replicas, .local_span = testing::bytes_of(local), .copy = copy.path()};
  EXPECT_EQ(client.run(page.run()), 0);
  EXPECT_EQ(local, std::string(local.size(), 'm'));
  EXPECT_EQ(copy.read(), std::string(1 << 20, '\7'));
  EXPECT_EQ(cache, std::string(100, '\7'));
  EXPECT_TRUE(pool.unplace("shard-7"));
  running = false;
  turner.join();
}

TEST(BulkApi, ThePageRunsWithWorkerThreads) { run_the_page(1, 1); }
TEST(BulkApi, ThePageRunsWithoutThreads) { run_the_page(0, 0); }

}  // namespace
}  // namespace weir
