// Calls on their way from a thread to its worker: the most urgent ones overtake the others there.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::open;
using testing::serve_echo;
using testing::server_config;

// The paths of the calls that the engine was given, in that order.
struct Submissions : Subscriber {
  bool wants_transfers() const override { return true; }
  void on(const event::TransferMoved& e) override {
    if (e.incoming || e.stage != event::TransferStage::submitted) return;
    std::lock_guard lock(mutex);
    paths.push_back(e.path);
  }
  std::vector<std::uint32_t> take() {
    std::lock_guard lock(mutex);
    return std::exchange(paths, {});
  }
  std::mutex mutex;
  std::vector<std::uint32_t> paths;
};

// A server for each level, so that the path tells the level.
TEST(Submission, TheMostUrgentRingComesFirst) {
  constexpr int kLevels[] = {7, 5, 0, 3, 6, 1, 4, 2};
  auto submissions = std::make_shared<Submissions>();
  Config config = client_config(1);
  config.subscriber = submissions;
  Pool client = open(config);
  std::vector<Pool> servers;
  std::vector<Peer> peers;
  std::vector<std::uint32_t> path_of_level;
  for (int level = 0; level < 8; ++level) {
    servers.push_back(open(server_config(1)));
    serve_echo(servers.back());
    peers.push_back(client.peer(servers.back().listen_address()));
    ASSERT_TRUE(peers.back().unary("echo", "").get());
    submissions->take();
    ASSERT_TRUE(peers.back().unary("echo", "").get()) << "with a path now";
    const std::vector<std::uint32_t> paths = submissions->take();
    ASSERT_EQ(paths.size(), 1u);
    path_of_level.push_back(paths.front());
  }

  std::atomic<bool> is_held{false}, may_go_on{false};
  std::atomic<bool> is_attached{false};
  Pool gate_keeper = open(server_config(1));
  ASSERT_TRUE(gate_keeper.serve_inline("wait", [&](InlineRequest& request) {
    while (!is_attached) std::this_thread::yield();
    request.reply("");
  }));
  client.peer(gate_keeper.listen_address()).unary("wait", "", {.deadline = 1h}).then([&](Result<Reply>) {
    is_held = true;
    while (!may_go_on) std::this_thread::yield();
  });
  is_attached = true;
  testing::await([&] { return is_held.load(); });
  submissions->take();
  std::vector<Call> calls;
  for (const int level : kLevels) {
    calls.push_back(peers[static_cast<std::size_t>(level)].unary("echo", "", {.priority = level, .deadline = 1h}));
  }
  may_go_on = true;
  for (Call& call : calls) EXPECT_TRUE(call.get());
  EXPECT_EQ(submissions->take(), path_of_level);
}

}  // namespace
}  // namespace weir
