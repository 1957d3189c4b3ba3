// Which thread reads and writes files: never a worker of a pool that has an executor. This program stands between the
// pool and the system to see who calls.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "pool/bulk_client.h"
#include "pool/bulk_testing.h"

namespace {

struct Seen {
  std::mutex mutex;
  std::vector<std::thread::id> reads, writes, syncs;

  void note(std::vector<std::thread::id>& threads) {
    const std::lock_guard lock(mutex);
    threads.push_back(std::this_thread::get_id());
  }
};

Seen& seen() {
  static Seen all;
  return all;
}

}  // namespace

// These take precedence over the C library's.
extern "C" ssize_t pread(int file, void* to, std::size_t bytes, off_t offset) {
  seen().note(seen().reads);
  return syscall(SYS_pread64, file, to, bytes, offset);
}
extern "C" ssize_t pwrite(int file, const void* from, std::size_t bytes, off_t offset) {
  seen().note(seen().writes);
  return syscall(SYS_pwrite64, file, from, bytes, offset);
}
extern "C" int fdatasync(int file) {
  seen().note(seen().syncs);
  return static_cast<int>(syscall(SYS_fdatasync, file));
}

namespace weir {
namespace {

using pool::kPartBytes;
using testing::bytes_of;
using testing::client_config;
using testing::error_of;
using testing::is_same;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;
using testing::TemporaryFile;

// Both pools share one worker.
class BulkThread : public ::testing::Test {
 protected:
  void begin(int executor_threads) {
    {
      const std::lock_guard lock(seen().mutex);
      seen().reads.clear();
      seen().writes.clear();
      seen().syncs.clear();
    }
    Config listening = server_config(1), calling = client_config(1);
    listening.on = calling.on = &workers;
    listening.executor_threads = executor_threads;
    server.emplace(open(listening));
    client.emplace(open(calling));
    ASSERT_TRUE(server->serve_inline("look", [this](InlineRequest& request) {
      worker = std::this_thread::get_id();
      request.reply("");
    }));
    ASSERT_TRUE(client->peer(server->listen_address()).unary("look", "").get());
    ASSERT_TRUE(server->place("file", Placement::file(file.path())));
  }
  void put_and_get() {
    const std::string text = pattern(2 * kPartBytes + 5);
    const Peer to = client->peer(server->listen_address());
    const Result<PutReport> put = to.put("file", payload_of(*client, text), {.sync = true}).get();
    ASSERT_TRUE(put) << error_of(put);
    std::string here(text.size(), '\0');
    const Result<GetReport> got = to.get("file", into(bytes_of(here))).get();
    ASSERT_TRUE(got) << error_of(got);
    EXPECT_TRUE(is_same(here, text));
  }
  static std::size_t count(const std::vector<std::thread::id>& threads, std::thread::id who) {
    return static_cast<std::size_t>(std::count(threads.begin(), threads.end(), who));
  }

  const TemporaryFile file;
  std::thread::id worker;
  Workers workers = Workers::open({.threads = 1}).value();
  std::optional<Pool> server, client;
};

TEST_F(BulkThread, FilesArePutAndReadByTheExecutor) {
  begin(1);
  put_and_get();
  const std::lock_guard lock(seen().mutex);
  for (const auto* threads : {&seen().reads, &seen().writes, &seen().syncs}) {
    EXPECT_FALSE(threads->empty());
    EXPECT_EQ(count(*threads, worker), 0u);
    EXPECT_EQ(count(*threads, std::this_thread::get_id()), 0u) << "nor by who calls";
  }
}

TEST_F(BulkThread, AGetIntoAFileIsWrittenByWhoAwaitsIt) {
  begin(1);
  put_and_get();
  const TemporaryFile target;
  {
    const std::lock_guard lock(seen().mutex);
    seen().writes.clear();
  }
  const Result<GetReport> got = client->peer(server->listen_address()).get("file", into_file(target.path())).get();
  ASSERT_TRUE(got) << error_of(got);
  const std::lock_guard lock(seen().mutex);
  EXPECT_FALSE(seen().writes.empty());
  EXPECT_EQ(count(seen().writes, std::this_thread::get_id()), seen().writes.size());
}

// As the documentation says.
TEST_F(BulkThread, WithoutAnExecutorTheyAreWrittenByTheWorker) {
  begin(0);
  {
    const std::lock_guard lock(seen().mutex);
    seen().writes.clear();
  }
  put_and_get();
  const std::lock_guard lock(seen().mutex);
  EXPECT_FALSE(seen().writes.empty());
  EXPECT_EQ(count(seen().writes, worker), seen().writes.size());
}

}  // namespace
}  // namespace weir
