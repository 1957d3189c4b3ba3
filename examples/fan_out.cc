// One question to many shards at once, each answer awaited for no longer than a deadline: what has come by then is the
// result, and the errors say who is missing. All in one process; between machines only the addresses change.
#include <weir/weir.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;

namespace {

// A server with some rows of a table; one that is stuck keeps the question and does not answer.
weir::Pool open_shard(int rows, std::vector<weir::Responder>* stuck) {
  weir::Pool shard = weir::Pool::open({.listen = "127.0.0.1:0", .identity = weir::Identity::development()}).value();
  shard
      .serve_inline("count",
                    [rows, stuck](weir::InlineRequest& request) {
                      if (stuck != nullptr) return stuck->push_back(request.defer());
                      request.reply(std::to_string(rows));
                    })
      .value();
  return shard;
}

weir::Task<int> count_rows(const std::vector<weir::Peer>& shards, std::string_view table) {
  std::vector<weir::Result<weir::Reply>> counts = co_await weir::all(
      shards, [&](const weir::Peer& shard) { return shard.unary("count", table, {.priority = 1, .deadline = 2s}); });
  int rows = 0, missing = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i]) {
      rows += std::stoi(std::string(counts[i]->text()));
    } else {
      ++missing;
      std::printf("shard %zu: %s\n", i, counts[i].error().to_string().c_str());
    }
  }
  std::printf("%d rows in %zu of %zu shards\n", rows, counts.size() - missing, counts.size());
  co_return missing;
}

}  // namespace

int main() {
  std::vector<weir::Responder> stuck;  // outlives the pool whose questions it holds
  std::vector<weir::Pool> servers;
  for (const int rows : {100, 20, 3}) servers.push_back(open_shard(rows, nullptr));
  servers.push_back(open_shard(0, &stuck));

  weir::Pool client = weir::Pool::open({.identity = weir::Identity::development()}).value();
  std::vector<weir::Peer> shards;
  for (const weir::Pool& server : servers) {
    shards.push_back(client.peer(server.listen_address()));
    // A first call includes the handshake; whoever counts milliseconds connects before.
    if (auto ready = shards.back().ready({.deadline = 5s}).get(); !ready) {
      std::fprintf(stderr, "%s\n", ready.error().to_string().c_str());
      return 1;
    }
  }
  const int missing = client.run(count_rows(shards, "people"));
  (void)servers.back().close(0ms);  // with a question still open, which fails
  return missing == 1 ? 0 : 1;
}
