// put() into files: full disks, and who reads meanwhile.
#include <atomic>
#include <thread>

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
using testing::kRecord;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;
using testing::TemporaryFile;

using Pair = testing::BulkPair;

TEST(BulkFile, AFullDiskLeavesWholeRecordsAndAPutGoesOnInsideAPart) {
  for (const std::size_t old_bytes : {std::size_t{0}, 4 * kPartBytes}) {
    Pair pair;
    const std::size_t size = 5 * kPartBytes + 77;
    const std::string text = pattern(size), old = pattern(old_bytes, 9);
    const TemporaryFile file(old);
    const Payload payload = payload_of(*pair.client, text);
    ASSERT_TRUE(pair.server->place("file", Placement::file(file.path())));
    const std::size_t whole = kPartBytes + 10 * kRecord;
    PutReport report;
    {
      const testing::FullDisk full(whole + 20'000);
      const Result<PutReport> put = pair.to().put("file", payload, {.report = &report}).get();
      ASSERT_FALSE(put);
      EXPECT_EQ(put.error().code(), Code::system) << error_of(put);
    }
    EXPECT_EQ(report.acknowledged_bytes, whole) << "in the middle of the second part";
    EXPECT_TRUE(is_same(file.read(), text.substr(0, whole) + old.substr(std::min(whole, old.size()))));
    const Result<PutReport> again = pair.to().put("file", payload, {.resume_at = report.acknowledged_bytes}).get();
    ASSERT_TRUE(again) << error_of(again);
    EXPECT_TRUE(is_same(file.read(), text));
  }
}

TEST(BulkFile, AGetNeverSeesHalfARecord) {
  Config listening = server_config(1);
  listening.executor_threads = 2;
  Pool server = open(listening), client = open(client_config(1));
  // All that is read at once, to meet whoever writes as often as possible.
  const TemporaryFile file(std::string(kPartBytes, 'a'));
  ASSERT_TRUE(server.place("file", Placement::file(file.path())));
  const Peer to = client.peer(server.listen_address());
  std::atomic<bool> is_running{true};
  std::thread putter([&] {
    const Payload payloads[] = {payload_of(client, std::string(kPartBytes, 'a')),
                                payload_of(client, std::string(kPartBytes, 'b'))};
    for (std::size_t i = 0; is_running; ++i) {
      const Result<PutReport> put = to.put("file", payloads[i % 2]).get();
      EXPECT_TRUE(put) << error_of(put);
    }
  });
  int torn = 0;
  std::string here(kPartBytes, '\0');
  for (int i = 0; i < 300; ++i) {
    const Result<GetReport> got = to.get("file", into(bytes_of(here))).get();
    EXPECT_TRUE(got) << error_of(got);
    for (std::size_t at = 0; at < here.size(); at += kRecord) {
      const std::string_view record = std::string_view(here).substr(at, kRecord);
      torn += record.find_first_not_of(record[0]) != std::string_view::npos;
    }
  }
  is_running = false;
  putter.join();
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace weir
