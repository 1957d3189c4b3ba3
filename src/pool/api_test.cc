// The lines that the documentation shows, compiled and run.
#include <atomic>
#include <map>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;

struct Watch : weir::Subscriber {
  void on(const weir::event::PeerHealthChanged& e) override {
    if (e.health == event::PeerHealth::healthy) ++healthy;
  }
  std::atomic<int> healthy{0};
};

struct Store {
  Task<std::string> find(std::string_view key) { co_return values.at(std::string(key)); }
  std::map<std::string, std::string> values{{"k1", "v1"}};
};

Task<int> client_side(weir::Pool& pool, std::string address) {
  std::string trace_context = "trace";
  weir::Peer db = pool.peer(address);
  if (!co_await db.ready()) co_return 1;
  weir::Result<weir::Reply> got = co_await db.unary("kv.get", "k1", {.priority = 0, .deadline = 5s});
  if (!got || got->text() != "v1") co_return 2;
  if (!(co_await db.unary("kv.get", std::string("k1"), {.header = trace_context}))) co_return 3;

  auto call = db.unary("kv.get", "k1", {.header = trace_context});
  auto header = co_await call.header();
  if (!header) co_return 4;
  if (!co_await call) co_return 5;

  std::vector<weir::Peer> shards(3, db);
  std::string key = "k1";
  auto replies = co_await weir::all(shards, [&](weir::Peer& s) { return s.unary("kv.get", key); });
  if (replies.size() != 3 || !replies[2] || replies[2]->text() != "v1") co_return 6;

  auto missing = co_await db.unary("kv.get", "k2");
  if (missing || missing.error().code() != Code::application) co_return 7;

  auto prepare = db.unary("kv.get", "k1", {.tracked = true});
  auto commit = db.unary("kv.get", "k1", {.after = {prepare.responded()}});
  auto audit = db.unary("kv.get", "k1", {.after = {prepare.sent().or_failed()}});
  if (!co_await commit || !co_await audit || !co_await prepare) co_return 8;
  auto doomed = db.unary("kv.get", "k2", {.tracked = true});
  auto cascaded = co_await db.unary("kv.get", "k1", {.after = {doomed.responded(), prepare.responded()}});
  if (cascaded || cascaded.error().code() != Code::dependency_failed) co_return 9;
  co_return 0;
}

void run_the_page(int server_workers, int client_workers) {
  Store store;
  auto watch = std::make_shared<Watch>();
  auto pool = weir::Pool::open({
                                   .listen = "127.0.0.1:0",
                                   .secret = "sixteen bytes or more",
                                   .workers = server_workers,
                               })
                  .value();
  ASSERT_TRUE(pool.serve("kv.get", [&](weir::Request request) -> weir::Task<weir::Reply> {
    co_return weir::Reply{co_await store.find(request.text())};
  }));
  ASSERT_TRUE(pool.serve_inline("ping", [](weir::InlineRequest& r) noexcept { r.reply(r.body()); }));

  auto client =
      weir::Pool::open({.secret = "sixteen bytes or more", .workers = client_workers, .subscriber = watch}).value();
  std::atomic<bool> running{true};
  std::thread turner([&] {
    while (running) pool.poll_for(1ms);
  });
  EXPECT_EQ(client.run(client_side(client, pool.listen_address())), 0);
  weir::Peer db = client.peer(pool.listen_address());
  auto same = db.unary("kv.get", "k1").get();
  ASSERT_TRUE(same);
  EXPECT_EQ(same->text(), "v1");
  std::atomic<bool> done{false};
  db.unary("ping", "k1").then([&](weir::Result<weir::Reply> r) { done = r && r->text() == "k1"; });
  while (!done) client.poll_for(1ms);
  EXPECT_GE(watch->healthy, 1);
  EXPECT_TRUE(client.close(5s));
  running = false;
  turner.join();
  EXPECT_TRUE(pool.close());
}

TEST(Api, ThePageRunsWithWorkerThreads) { run_the_page(1, 1); }
TEST(Api, ThePageRunsWithoutThreads) { run_the_page(0, 0); }

TEST(Api, ATaskThatThrowsThrowsWhereItIsAwaited) {
  auto pool = weir::Pool::open({.secret = "sixteen bytes or more", .workers = 0}).value();
  const auto throws = []() -> Task<int> {
    throw std::runtime_error("thrown");
    co_return 1;
  };
  const auto outer = [&]() -> Task<int> { co_return co_await throws(); };
  EXPECT_THROW(pool.run(outer()), std::runtime_error);
}

TEST(Api, TasksOfAnyDepthUseNoStack) {
  auto pool = weir::Pool::open({.secret = "sixteen bytes or more", .workers = 0}).value();
  struct Recursion {
    static Task<int> down(int depth) {
      if (depth == 0) co_return 0;
      co_return 1 + co_await down(depth - 1);
    }
  };
  EXPECT_EQ(pool.run(Recursion::down(2'000)), 2'000);
}

}  // namespace
}  // namespace weir
