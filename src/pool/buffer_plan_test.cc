// What buffers and large messages live in: every kind carries calls, and what the system cannot give is said.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pool/large_testing.h"

namespace weir {
namespace {

using testing::client_config;
using testing::is_same;
using testing::kMiB;
using testing::open;
using testing::pattern;
using testing::serve_echo;
using testing::server_config;

class Listener : public Subscriber {
 public:
  void on(const event::Degraded& event) override {
    const std::scoped_lock lock(mutex_);
    degraded_.emplace_back(event.what);
  }
  std::vector<std::string> degraded() const {
    const std::scoped_lock lock(mutex_);
    return degraded_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> degraded_;
};

std::string echo_through(const BufferPlan& plan, const std::shared_ptr<Subscriber>& subscriber = nullptr) {
  Config listening = server_config(1);
  listening.buffers = plan;
  Config calling = client_config(1);
  calling.buffers = plan;
  listening.subscriber = calling.subscriber = subscriber;
  Pool server = open(listening);
  serve_echo(server);
  Pool client = open(calling);
  const std::string body = pattern(3 * kMiB + 5);
  Result<Reply> reply = client.peer(server.listen_address()).unary("echo", body).get();
  if (!reply) return reply.error().to_string();
  return is_same(reply->text(), body) ? "the same" : "something else";
}

TEST(BufferPlan, EveryKindCarriesLargeMessages) {
  const std::string directory = ::testing::TempDir();
  for (const BufferPlan& plan :
       {BufferPlan{}, BufferPlan{.keep_bytes = 0}, BufferPlan{.memory = BufferMemory::pages},
        BufferPlan{.memory = BufferMemory::pages, .touch = true}, BufferPlan{.memory = BufferMemory::huge_pages},
        BufferPlan{.memory = BufferMemory::files, .directory = directory}}) {
    EXPECT_EQ(echo_through(plan), "the same") << static_cast<int>(plan.memory);
  }
}

TEST(BufferPlan, FilesLeaveNothingBehind) {
  const std::filesystem::path directory = std::filesystem::path(::testing::TempDir()) / "weir-buffer-plan";
  std::filesystem::create_directory(directory);
  EXPECT_EQ(echo_through({.memory = BufferMemory::files, .directory = directory.string()}), "the same");
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  std::filesystem::remove(directory);
}

TEST(BufferPlan, LimitsSayWhatIsKept) {
  const auto kept = [](const BufferPlan& plan) {
    Config config = server_config(1);
    config.buffers = plan;
    const std::string limits = open(config).limits();
    const std::size_t at = limits.find("kept for the next ones: ");
    return at == std::string::npos ? limits : limits.substr(at + 24, limits.find('\n', at) - at - 24);
  };
  EXPECT_EQ(kept({.keep_bytes = 12'345'678}), "12345678 bytes (11.8 MiB)");
  // Mappings are never given back, so that no number is the most.
  for (const BufferMemory memory : {BufferMemory::pages, BufferMemory::huge_pages, BufferMemory::files}) {
    BufferPlan plan{.memory = memory, .keep_bytes = 12'345'678};
    if (memory == BufferMemory::files) plan.directory = ::testing::TempDir();
    EXPECT_EQ(kept(plan), "all that were ever in use at once, in whole mappings of 64 MiB and more");
  }
}

std::size_t free_huge_pages() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::size_t count = 0;
  while (file >> word) {
    if (word == "HugePages_Free:") file >> count;
  }
  return count;
}

TEST(BufferPlan, HugePagesThatAreNotThereAreAnEvent) {
  constexpr std::size_t kOfTwoPools = 64;  // the first 64 MiB of each
  const bool has_enough = free_huge_pages() >= kOfTwoPools;
  const auto listener = std::make_shared<Listener>();
  EXPECT_EQ(echo_through({.memory = BufferMemory::huge_pages}, listener), "the same");
  const std::vector<std::string> degraded = listener->degraded();
  EXPECT_EQ(std::count(degraded.begin(), degraded.end(), "huge pages") == 0, has_enough);
}

TEST(BufferPlan, OneThatCannotWorkIsAnErrorOfOpen) {
  const auto refusal = [](const BufferPlan& plan) {
    Config config = server_config(1);
    config.buffers = plan;
    const Result<Pool> pool = Pool::open(config);
    return pool ? "opened" : pool.error().to_string();
  };
  EXPECT_NE(refusal({.memory = BufferMemory::files}).find("buffers.directory"), std::string::npos);
  EXPECT_NE(refusal({.memory = BufferMemory::pages, .directory = "/tmp"}).find("buffers.directory"), std::string::npos);
  EXPECT_NE(refusal({.memory = BufferMemory::files, .directory = "/nowhere/at/all"}).find("/nowhere/at/all"),
            std::string::npos);
}

}  // namespace
}  // namespace weir
