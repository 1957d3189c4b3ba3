// put() and get() of more than 4 GiB between two processes, from file to file and between memories: neither side ever
// has more memory than its limits come to, which is a small part of what it moves. Needs 5 GiB of disk, in TEST_TMPDIR,
// and as much memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pool/bulk_testing.h"
#include "pool/child_testing.h"
#include "pool/huge_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::Child;
using testing::kHuge;
using testing::kMiB;
using testing::kRecord;
using testing::Lines;
using testing::open;

constexpr std::uint32_t kPeers = 4;
constexpr std::size_t kPayloadBytes = 512 * kRecord;     // of one put: 30 MiB
constexpr std::uint64_t kStepBytes = 16 * kMiB;          // of a get, between two reports
constexpr std::uint64_t kKilledAt = kHuge / 4 + 12'345;  // bytes

// What a program is beside its pool: code, stacks, heaps of threads.
constexpr std::size_t kProgramBytes = 48 * kMiB;

std::string source_path, copy_path;  // set before the processes part

// ---- the files ------------------------------------------------------------------------------------------------------

// Mostly holes, but in each record that is sent there is something that is nowhere else. Without a name, in memory:
// some disks take minutes to forget a file of so many pieces. Its copies are on the disk.
constexpr std::size_t kBlockBytes = 4096, kBlockEvery = 14 * kBlockBytes;
static_assert(kBlockEvery + kBlockBytes <= kRecord);

void make_source() {
  const int file = memfd_create("weir-huge", 0);  // as long as this process
  ASSERT_GE(file, 0);
  for (std::size_t at = 0; at + kBlockBytes <= kHuge; at += kBlockEvery) {
    const std::string block = testing::pattern(kBlockBytes, at + 1);
    ASSERT_EQ(pwrite(file, block.data(), block.size(), static_cast<off_t>(at)), static_cast<ssize_t>(block.size()));
  }
  ASSERT_EQ(pwrite(file, "end", 3, kHuge - 3), 3);
  source_path = "/proc/self/fd/" + std::to_string(file);  // also in children
}

// Byte by byte.
bool is_copy_the_source() {
  const int source = ::open(source_path.c_str(), O_RDONLY | O_CLOEXEC);
  const int copy = ::open(copy_path.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<char> wanted(kMiB), got(kMiB);
  std::size_t at = 0;
  for (ssize_t n = 0; (n = pread(source, wanted.data(), wanted.size(), static_cast<off_t>(at))) > 0;) {
    const auto bytes = static_cast<std::size_t>(n);
    if (pread(copy, got.data(), got.size(), static_cast<off_t>(at)) != n) break;
    if (std::memcmp(wanted.data(), got.data(), bytes) != 0) break;
    at += bytes;
  }
  ::close(source);
  ::close(copy);
  return at == kHuge && std::filesystem::file_size(copy_path) == kHuge;
}

// Of a file, shared: the pages are the file's, not the process's own.
std::span<std::byte> map(const std::string& path, bool is_new) {
  const int file = ::open(path.c_str(), is_new ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0600);
  if (is_new && ftruncate(file, kHuge) != 0) std::abort();
  void* const memory = mmap(nullptr, kHuge, is_new ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::abort();
  ::close(file);
  return {static_cast<std::byte*>(memory), kHuge};
}

// ---- the two sides --------------------------------------------------------------------------------------------------

Config with_few_bytes(Config config) {
  Limits& limits = config.limits;
  limits.peers = kPeers;
  limits.calls_per_peer = 64;
  limits.queued_calls = 1024;
  limits.request_bytes = limits.request_bytes_per_peer = kMiB;
  limits.nested_request_bytes = kMiB / 4;
  limits.answer_bytes = limits.reply_bytes = 4 * kMiB;
  limits.message_bytes = 8 * kMiB;
  limits.large_request_bytes = limits.large_reply_bytes = limits.large_bytes_per_peer = 32 * kMiB;
  limits.nested_large_request_bytes = 8 * kMiB;
  limits.buffer_bytes = 64 * kMiB;
  limits.receive_buffers = 128;
  config.buffers.keep_bytes = 32 * kMiB;
  return config;
}

// A line of Pool::limits().
std::size_t limit_of(const Pool& pool, std::string_view name) {
  const std::string page = pool.limits();
  const std::size_t at = page.find(std::string(name) + ": ");
  if (at == std::string::npos) std::abort();
  return std::stoull(page.substr(at + name.size() + 2));
}

// All that it may hold but for the fixed tables of transfers, which would be full of calls first.
std::size_t most_bytes_of(const Pool& pool) {
  return limit_of(pool, "most bytes of messages that all peers together can make one worker hold") +
         kPeers * limit_of(pool, "most bytes of bookkeeping that one peer can make one worker hold") +
         limit_of(pool, "most bytes of buffers and payloads") +
         limit_of(pool, "most bytes of them and of large messages that are kept for the next ones") + kProgramBytes;
}

std::string numbers(std::initializer_list<std::size_t> values) {
  std::string text;
  for (const std::size_t value : values) text += std::to_string(value) + " ";
  return text;
}

// Says what its limits come to, the most it had of its own, and the most it had with all that it mapped.
void tell_memory(Lines& parent, const Pool& pool, const testing::OwnMemoryWatch& memory) {
  parent.say(numbers({most_bytes_of(pool), memory.most_bytes(), testing::status_bytes("VmHWM")}));
}

void serve(Lines& parent) {
  const testing::OwnMemoryWatch memory;
  Pool pool = open(with_few_bytes(testing::server_config(1)));
  const bool is_memory = parent.hear() == "memory";
  if (is_memory) {
    pool.place("source", Placement::constant(map(source_path, false))).value();
    pool.place("copy", Placement::memory(map(copy_path, true))).value();
  } else {
    pool.place("source", Placement::file(source_path, {.access = Access::get_only})).value();
    pool.place("copy", Placement::file(copy_path, {.create = true})).value();
  }
  parent.say(pool.listen_address());
  while (!parent.hear().empty()) tell_memory(parent, pool, memory);
}

// From `offset` on; says how far it is.
void put(Lines& parent, const Pool& pool, const Peer& to, std::uint64_t offset) {
  const int source = ::open(source_path.c_str(), O_RDONLY | O_CLOEXEC);
  while (offset < kHuge) {
    Buffer buffer = pool.allocate(std::min<std::uint64_t>(kPayloadBytes, kHuge - offset)).get().value();
    const auto span = buffer.span();
    if (pread(source, span.data(), span.size(), static_cast<off_t>(offset)) != static_cast<ssize_t>(span.size())) {
      std::abort();
    }
    const std::uint64_t bytes = span.size();
    const auto report = to.put("copy", pool.seal(std::move(buffer)), {.offset = offset}).get();
    if (!report) {
      std::fprintf(stderr, "%s\n", report.error().to_string().c_str());
      break;
    }
    offset += bytes;
    parent.say(numbers({offset}));
  }
  ::close(source);
}

struct Told {
  Lines& parent;
  std::uint64_t bytes;
};

void tell_progress(void* context, std::uint64_t acknowledged, std::uint64_t of_bytes) {
  Told& told = *static_cast<Told*>(context);
  if (acknowledged < told.bytes + kStepBytes && acknowledged != of_bytes) return;
  told.bytes = acknowledged;
  told.parent.say(numbers({acknowledged}));
}

// One get for all of it.
void get(Lines& parent, const Peer& from, const GetTarget& target, std::uint64_t offset) {
  Told told{parent, offset};
  const auto report =
      from.get("source", target, {.resume_at = offset, .progress = {.function = tell_progress, .context = &told}})
          .get();
  if (!report) std::fprintf(stderr, "%s\n", report.error().to_string().c_str());
}

// One command: the server's address, what to do, and where to go on.
void call(Lines& parent) {
  const testing::OwnMemoryWatch memory;
  Pool pool = open(with_few_bytes(testing::client_config(1)));
  const std::string address = parent.hear(), what = parent.hear();
  const std::uint64_t offset = std::stoull(parent.hear());
  const Peer server = pool.peer(address);
  if (what == "put") put(parent, pool, server, offset);
  if (what == "get file") get(parent, server, into_file(copy_path), offset);
  if (what == "get memory") get(parent, server, into(map(copy_path, true)), offset);
  parent.say("over");
  tell_memory(parent, pool, memory);
}

// ---- the test, in a third process that only looks on ----------------------------------------------------------------

class BulkHuge : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::are_huge_tests_wanted()) GTEST_SKIP() << testing::kHowToWant;
    const char* directory = std::getenv("TEST_TMPDIR");
    folder_ = std::string(directory != nullptr ? directory : "/tmp") + "/weir-huge-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    copy_path = folder_ + "/copy";
    ASSERT_GE(std::filesystem::space(folder_).available, kHuge + 100 * kMiB) << "the disk is too full";
    make_source();
  }
  void TearDown() override {
    server_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void start_server(const std::string& places) {
    server_.emplace(&serve);
    server_->lines().say(places);
    address_ = server_->lines().hear();
  }

  // By one client, or by two of which the first is killed on the way.
  void run(const std::string& what, bool is_killed) {
    std::uint64_t done = 0;
    if (is_killed) {
      Child client(&call);
      begin(client, what, 0);
      while (done < kKilledAt) {
        const std::string line = client.lines().hear();
        ASSERT_TRUE(!line.empty() && line != "over") << "it stopped at " << done;
        done = std::stoull(line);
      }
      client.kill();
    }
    ASSERT_LT(done, kHuge);
    Child client(&call);
    begin(client, what, done);
    for (std::string line; line = client.lines().hear(), line != "over"; done = std::stoull(line)) {
      ASSERT_FALSE(line.empty()) << "it ended at " << done;
    }
    ASSERT_EQ(done, kHuge);
    look_at_memory(what + ", client", client, what == "get memory");
  }

  void look_at_memory(const std::string& who, Child& child, bool has_mapped) {
    std::size_t bound = 0, own = 0, all = 0;
    ASSERT_EQ(std::sscanf(child.lines().hear().c_str(), "%zu %zu %zu", &bound, &own, &all), 3);
    std::printf("%s: most memory of its own %zu MiB, with mapped files %zu MiB, of at most %zu MiB\n", who.c_str(),
                own >> 20, all >> 20, bound >> 20);
    EXPECT_LT(bound, kHuge / 8) << "or the test shows nothing";
    EXPECT_LE(own, bound);
    EXPECT_GT(own, kMiB) << "or it was not measured";
    if (!has_mapped) {
      EXPECT_LE(all, bound);
    }
  }

  void look_at_server(const std::string& who, bool has_mapped) {
    server_->lines().say("memory");
    look_at_memory(who + ", server", *server_, has_mapped);
  }

 private:
  void begin(Child& client, const std::string& what, std::uint64_t offset) {
    client.lines().say(address_);
    client.lines().say(what);
    client.lines().say(std::to_string(offset));
  }

  std::string folder_, address_;
  std::optional<Child> server_;
};

TEST_F(BulkHuge, AFileGoesToAFileInLittleMemoryAndGoesOnAfterTheSenderWasKilled) {
  start_server("files");
  run("put", true);
  EXPECT_TRUE(is_copy_the_source());
  look_at_server("put", false);
}

TEST_F(BulkHuge, AFileComesToAFileInLittleMemoryAndGoesOnAfterTheReceiverWasKilled) {
  start_server("files");
  std::filesystem::remove(copy_path);
  run("get file", true);
  EXPECT_TRUE(is_copy_the_source());
  look_at_server("get", false);
}

TEST_F(BulkHuge, MemoryIsPutToInLittleMoreMemory) {
  start_server("memory");
  run("put", false);
  EXPECT_TRUE(is_copy_the_source());
  look_at_server("put", true);
}

TEST_F(BulkHuge, MemoryIsGotIntoMemoryInLittleMoreMemory) {
  start_server("memory");
  std::filesystem::remove(copy_path);
  run("get memory", false);
  EXPECT_TRUE(is_copy_the_source());
  look_at_server("get", true);
}

}  // namespace
}  // namespace weir
