// put() and get() that fail or are interrupted: what they say, and what they leave.
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "pool/bulk_client.h"
#include "pool/bulk_testing.h"
#include "pool/pool_state.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using pool::kPartBytes;
using testing::bytes_of;
using testing::client_config;
using testing::error_of;
using testing::forged_payload;
using testing::is_same;
using testing::kMiB;
using testing::kRecord;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;
using testing::TemporaryFile;
using testing::total;

using Pair = testing::BulkPair;

// ---- errors ---------------------------------------------------------------------------------------------------------

TEST(BulkFailure, WhatCannotBeIsAnErrorThatSaysWhy) {
  Pair pair;
  std::string memory(kMiB, 'o');
  const TemporaryFile file("text");
  const Payload payload = payload_of(*pair.client, pattern(kMiB));
  std::string here(kMiB, '\0');
  const Result<PutReport> nobody = pair.to().put("memory", payload).get();
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code(), Code::unknown_method) << "nothing was ever placed there";

  ASSERT_TRUE(pair.server->place("read", Placement::constant(as_bytes(memory))));
  ASSERT_TRUE(pair.server->place("write", Placement::memory(bytes_of(memory), Access::put_only)));
  ASSERT_TRUE(pair.server->place("file", Placement::file(file.path(), {.limit_bytes = 1000})));
  const auto sent = [&] { return total(*pair.client).payload_bytes_sent; };
  const std::uint64_t before = sent();
  const auto put = [&](const char* name, std::uint64_t offset) {
    const Result<PutReport> result = pair.to().put(name, payload, {.offset = offset}).get();
    EXPECT_FALSE(result);
    EXPECT_FALSE(result.error().may_have_run()) << error_of(result);
    EXPECT_NE(result.error().message().find("\"" + std::string(name) + "\""), std::string::npos) << error_of(result);
    return result ? Code{} : result.error().code();
  };
  EXPECT_EQ(put("elsewhere", 0), Code::unknown_method);
  EXPECT_EQ(put("read", 0), Code::refused);
  EXPECT_EQ(put("write", 1), Code::too_large);
  EXPECT_EQ(put("write", ~std::uint64_t{0} >> 3), Code::too_large);
  EXPECT_EQ(put("file", 0), Code::too_large);
  EXPECT_LT(sent() - before, 10'000u) << "no data flows for what is refused";
  const auto get = [&](const char* name, std::uint64_t offset) {
    const Result<GetReport> result = pair.to().get(name, into(bytes_of(here)), {.offset = offset}).get();
    EXPECT_FALSE(result);
    EXPECT_FALSE(result.error().may_have_run()) << error_of(result);
    EXPECT_NE(result.error().message().find("\"" + std::string(name) + "\""), std::string::npos) << error_of(result);
    return result ? Code{} : result.error().code();
  };
  EXPECT_EQ(get("elsewhere", 0), Code::unknown_method);
  EXPECT_EQ(get("write", 0), Code::refused);
  EXPECT_EQ(get("read", kMiB), Code::invalid_argument) << "beyond the end";
  EXPECT_EQ(get("file", 4), Code::invalid_argument);
  EXPECT_EQ(memory, std::string(kMiB, 'o'));
}

TEST(BulkFailure, AGetThatEndsBeyondWhatIsThereBringsAllThatIs) {
  Pair pair;
  const std::string text = pattern(3 * kMiB + 5);
  ASSERT_TRUE(pair.server->place("text", Placement::constant(as_bytes(text))));
  std::string here(8 * kMiB, '\0');
  GetReport report;
  const Result<GetReport> got = pair.to().get("text", into(bytes_of(here)), {.offset = 5, .report = &report}).get();
  ASSERT_FALSE(got);
  EXPECT_EQ(
      got.error().to_string(),
      "invalid_argument: the get goes beyond the end: \"text\" has 3145733 bytes (3145728 of 8388608 bytes from 5 "
      "on are acknowledged)");
  EXPECT_EQ(report.acknowledged_bytes, 3 * kMiB);
  EXPECT_TRUE(is_same(std::string_view(here).substr(0, 3 * kMiB), std::string_view(text).substr(5)));
}

TEST(BulkFailure, ASparsePartOfAFileReadsAsZeros) {
  Pair pair;
  const TemporaryFile file("begin");
  ASSERT_TRUE(pair.server->place("file", Placement::file(file.path())));
  ASSERT_TRUE(pair.to().put("file", payload_of(*pair.client, "end"), {.offset = 100'000}).get());
  std::string here(100'003, 'x');
  ASSERT_TRUE(pair.to().get("file", into(bytes_of(here))).get());
  EXPECT_TRUE(is_same(here, "begin" + std::string(99'995, '\0') + "end"));
}

TEST(BulkFailure, ArgumentsThatMakeNoSenseAreRefusedHere) {
  Pair pair;
  std::string memory(kMiB, 'o');
  ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
  const Payload payload = payload_of(*pair.client, pattern(kMiB));
  EXPECT_FALSE(pair.to().put("", payload).get());
  EXPECT_FALSE(pair.to().put(std::string(256, 'n'), payload).get());
  EXPECT_FALSE(pair.to().put("memory", payload, {.header = std::string_view(memory).substr(0, 513)}).get());
  EXPECT_FALSE(pair.to().put("memory", payload, {.resume_at = 1}).get());
  EXPECT_FALSE(pair.to().put("memory", payload, {.resume_at = 2 * kMiB}).get());
  EXPECT_FALSE(pair.to().put("memory", payload, {.priority = 8}).get());
  EXPECT_FALSE(pair.to().put("memory", payload, {.deadline = -1s}).get());
  EXPECT_FALSE(pair.to().get("memory", into(bytes_of(memory)), {.bytes = 2 * kMiB}).get());
  EXPECT_FALSE(pair.to().get("memory", into(bytes_of(memory)), {.resume_at = 2 * kMiB}).get());
  EXPECT_FALSE(pair.to().get("memory", into_file("/nowhere/at/all")).get());
  Buffer own = pair.client->allocate(kMiB).get().value();
  own.span()[0] = std::byte{1};
  const Result<PutReport> adopted =
      pair.to().put("memory", pair.client->adopt(std::move(own), {.offset = 0, .length = 16})).get();
  ASSERT_FALSE(adopted);
  EXPECT_EQ(adopted.error().code(), Code::invalid_argument);
  EXPECT_EQ(memory, std::string(kMiB, 'o'));
  const Peer nobody = pair.client->peer("no address");
  EXPECT_FALSE(nobody.put("memory", payload).get());
  EXPECT_FALSE(nobody.get("memory", into(bytes_of(memory))).get());
}

TEST(BulkFailure, ARecordThatDoesNotAuthenticateLeavesTheOldBytesAndAllBeforeItIsThere) {
  Pair pair;
  const std::size_t size = 3 * kPartBytes;
  std::string memory(size, 'o');
  ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
  const std::string text = pattern(size);
  PutReport report;
  const Result<PutReport> put = pair.to().put("memory", forged_payload(*pair.client, text), {.report = &report}).get();
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code(), Code::unauthenticated);
  ASSERT_TRUE(pair.server->unplace("memory"));
  const std::uint64_t good = size / 2 / kRecord * kRecord;
  EXPECT_EQ(report.acknowledged_bytes, good);
  EXPECT_NE(put.error().message().find(std::to_string(good) + " of "), std::string::npos) << error_of(put);
  EXPECT_TRUE(is_same(memory.substr(0, good), text.substr(0, good)));
  EXPECT_EQ(memory.substr(good, kRecord), std::string(kRecord, 'o'));
  EXPECT_EQ(total(*pair.server).records_forged, 1u);

  // On from there, in the middle of a part.
  ASSERT_NE(good % kPartBytes, 0u);
  ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
  const Result<PutReport> rest = pair.to().put("memory", payload_of(*pair.client, text), {.resume_at = good}).get();
  ASSERT_TRUE(rest) << error_of(rest);
  ASSERT_TRUE(pair.server->unplace("memory"));
  EXPECT_TRUE(is_same(memory, text));
}

TEST(BulkFailure, AnAnswerThatIsNonsenseIsAnErrorAndNoEmptySuccess) {
  std::string answer;
  // Applications cannot serve methods of the library's.
  const auto server = detail::PoolState::open(server_config(1)).value();
  const auto say = [&](Request) -> Task<Result<Reply>> { co_return Reply{answer}; };
  ASSERT_TRUE(server->serve(
      pool::kAskMethod, {.run_task = std::make_shared<pool::TaskHandler>(std::string(pool::kAskMethod.name()), say)}));
  Pool client = open(client_config(1));
  const Peer to = client.peer(server->listen_address());
  const TemporaryFile file;
  const Payload payload = payload_of(client, pattern(kMiB));
  const std::string too_many = pool::encode(pool::AskAnswer{~std::uint64_t{0}, kMiB});
  for (const std::string& nonsense : {std::string(), std::string("abc"), std::string(17, '\0'), too_many}) {
    answer = nonsense;
    const Result<GetReport> got = to.get("file", into_file(file.path())).get();
    ASSERT_FALSE(got) << nonsense.size();
    EXPECT_EQ(got.error().code(), Code::application);
    EXPECT_FALSE(to.get("file", into(std::span<std::byte>())).get());
    EXPECT_FALSE(to.put("file", Payload()).get());
    const Result<PutReport> put = to.put("file", payload).get();
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code(), Code::application) << error_of(put);
  }
}

TEST(BulkFailure, WhateverAGuardOrTeeThrowsIsThePeersError) {
  Pair pair;
  std::string memory(kMiB, 'o');
  std::atomic<int> asked{0};
  ASSERT_TRUE(
      pair.server->place("tee", Placement::memory(bytes_of(memory)).tee([](std::uint64_t, Bytes) { throw 7; })));
  ASSERT_TRUE(pair.server->place("guard", Placement::memory(bytes_of(memory)).guard([&](const auto&) -> Result<void> {
    if (++asked > 1) throw 7;
    return {};
  })));
  const Payload payload = payload_of(*pair.client, pattern(kMiB));
  for (const char* name : {"tee", "guard"}) {
    const Result<PutReport> put = pair.to().put(name, payload).get();
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code(), Code::application);
    EXPECT_NE(put.error().message().find("the handler threw an exception"), std::string::npos) << error_of(put);
    std::string here(kMiB, '\0');
    EXPECT_EQ(pair.to().get(name, into(bytes_of(here))).get().has_value(), name == std::string_view("tee"));
  }
}

TEST(BulkFailure, WhatCannotBePlacedSaysWhy) {
  Pair pair;
  const Result<void> device = pair.server->place("device", Placement::file("/dev/full"));
  ASSERT_FALSE(device) << "no ordinary file";
  EXPECT_EQ(device.error().code(), Code::invalid_argument);
  const Result<void> missing = pair.server->place("missing", Placement::file("/nowhere/at/all", {.create = true}));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::system);
}

// ---- interruption ---------------------------------------------------------------------------------------------------

TEST(BulkFailure, APutThatWasInterruptedGoesOnWhereItStopped) {
  Pair pair;
  const std::size_t size = 9 * kPartBytes + 77;
  std::string memory(size, 'o');
  const std::string text = pattern(size);
  const Payload payload = payload_of(*pair.client, text);
  std::atomic<int> records{0};
  Pool& server = *pair.server;
  // The guard says no in the middle: part after part is asked about.
  ASSERT_TRUE(server.place("memory", Placement::memory(bytes_of(memory)).guard([&](const BulkRequest&) -> Result<void> {
    if (++records != 5) return {};
    return std::unexpected(Error(Code::application, "not now"));
  })));
  PutReport report;
  const Result<PutReport> broken = pair.to().put("memory", payload, {.report = &report}).get();
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code(), Code::application);
  EXPECT_NE(broken.error().message().find("not now"), std::string::npos);
  EXPECT_EQ(report.acknowledged_bytes, 3 * kPartBytes) << "one question, three parts";
  const Result<PutReport> again = pair.to().put("memory", payload, {.resume_at = report.acknowledged_bytes}).get();
  ASSERT_TRUE(again) << error_of(again);
  EXPECT_EQ(again->acknowledged_bytes, size);
  ASSERT_TRUE(server.unplace("memory"));
  EXPECT_TRUE(is_same(memory, text));
}

// Whoever moves it in, for its memory to go back as it is written, has nothing to go on with.
TEST(BulkFailure, APayloadThatWasMovedFromIsNotResumed) {
  Pair pair;
  std::string memory(kMiB, 'o');
  ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(memory))));
  Payload payload = payload_of(*pair.client, pattern(kMiB));
  PutReport report;
  ASSERT_TRUE(pair.to().put("memory", std::move(payload), {.report = &report}).get());
  ASSERT_FALSE(payload);
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{kRecord}, report.acknowledged_bytes}) {
    const Result<PutReport> again = pair.to().put("memory", payload, {.resume_at = at}).get();
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code(), Code::invalid_argument);
    EXPECT_NE(again.error().message().find("moved away"), std::string::npos) << error_of(again);
  }
}

TEST(BulkFailure, AGetThatWasInterruptedGoesOnWhereItStopped) {
  Pair pair;
  const std::string text = pattern(9 * kPartBytes + 77);
  std::atomic<int> asked{0};
  ASSERT_TRUE(
      pair.server->place("text", Placement::constant(as_bytes(text)).guard([&](const BulkRequest&) -> Result<void> {
        if (++asked != 4) return {};
        return std::unexpected(Error(Code::application, "not now"));
      })));
  std::string here(text.size(), '\0');
  GetReport report;
  const Result<GetReport> broken = pair.to().get("text", into(bytes_of(here)), {.report = &report}).get();
  ASSERT_FALSE(broken);
  EXPECT_EQ(report.acknowledged_bytes, 3 * kPartBytes);
  const Result<GetReport> again =
      pair.to().get("text", into(bytes_of(here)), {.resume_at = report.acknowledged_bytes}).get();
  ASSERT_TRUE(again) << error_of(again);
  EXPECT_TRUE(is_same(here, text));
}

TEST(BulkFailure, APeerThatEndsInTheMiddleLeavesWholeRecords) {
  Pair pair;
  const std::size_t size = 20 * kPartBytes;
  const std::string text = pattern(size);
  const TemporaryFile file;
  std::atomic<int> records{0};
  std::promise<void> half;
  ASSERT_TRUE(pair.server->place("file", Placement::file(file.path()).tee([&](std::uint64_t, Bytes) {
    if (++records == 100) half.set_value();
  })));
  std::thread closer([&] {
    half.get_future().wait();
    static_cast<void>(pair.server->close(0s));
  });
  PutReport report;
  const Result<PutReport> put =
      pair.to().put("file", payload_of(*pair.client, text), {.deadline = 20s, .report = &report}).get();
  closer.join();
  ASSERT_FALSE(put);
  const std::string there = file.read();
  EXPECT_EQ(report.acknowledged_bytes % kRecord, 0u);
  ASSERT_GE(there.size(), report.acknowledged_bytes);
  EXPECT_TRUE(is_same(std::string_view(there).substr(0, report.acknowledged_bytes),
                      std::string_view(text).substr(0, report.acknowledged_bytes)));
  for (std::size_t at = 0; at < there.size(); at += kRecord) {
    const std::string_view record = std::string_view(there).substr(at, kRecord);
    const bool is_new = record == std::string_view(text).substr(at, record.size());
    EXPECT_TRUE(is_new || record == std::string(record.size(), '\0')) << at;
  }

  // Another one takes the rest, wherever the first one ended.
  Pool successor = open(server_config(1));
  ASSERT_TRUE(successor.place("file", Placement::file(file.path())));
  const Peer next = pair.client->peer(successor.listen_address());
  for (const std::uint64_t at : {report.acknowledged_bytes, std::uint64_t{kRecord} * 5}) {
    file.write(text.substr(0, at));
    const Result<PutReport> rest = next.put("file", payload_of(*pair.client, text), {.resume_at = at}).get();
    ASSERT_TRUE(rest) << error_of(rest);
    EXPECT_EQ(rest->acknowledged_bytes, size);
    EXPECT_TRUE(is_same(file.read(), text));
  }
}

TEST(BulkFailure, AGuardKnowsWhoAsks) {
  for (const int executors : {0, 2}) {
    std::string memory(2 * kPartBytes, 'o');
    std::atomic<int> asked{0};
    Config listening = server_config(1);
    listening.executor_threads = executors;
    Pool server = open(listening);
    ASSERT_TRUE(server.place("memory", Placement::memory(bytes_of(memory)).guard([&](const auto& request) {
      ++asked;
      EXPECT_TRUE(request.caller.address.starts_with("127.0.0.1:")) << request.caller.address;
      return request.caller.name == "client" || !request.is_put
                 ? Result<void>{}
                 : std::unexpected(Error(Code::refused, "not by " + std::string(request.caller.name)));
    })));
    Config other = client_config(1);
    other.name = "another";
    Pool client = open(client_config(1)), another = open(other);
    const std::string text = pattern(memory.size());
    const Result<PutReport> refused =
        another.peer(server.listen_address()).put("memory", payload_of(another, text)).get();
    EXPECT_TRUE(error_of(refused).starts_with("refused: not by another")) << error_of(refused);
    EXPECT_EQ(memory, std::string(memory.size(), 'o'));
    ASSERT_TRUE(client.peer(server.listen_address()).put("memory", payload_of(client, text)).get());
    EXPECT_TRUE(is_same(memory, text));
    std::string got(memory.size(), 'x');
    ASSERT_TRUE(another.peer(server.listen_address()).get("memory", into(bytes_of(got))).get());
    EXPECT_TRUE(is_same(got, text));
    EXPECT_GE(asked, 5);
  }
}

TEST(BulkFailure, APutThatThePeerRefusedHasNothingUnderWayAnyMore) {
  Config listening = server_config(1);
  listening.executor_threads = 2;
  Pool server = open(listening), client = open(client_config(1));
  std::string memory(3 * kPartBytes, 'o');
  std::atomic<bool> is_written{false}, is_ended{false};
  ASSERT_TRUE(server.place("memory", Placement::memory(bytes_of(memory))
                                         .guard([&](const BulkRequest& request) -> Result<void> {
                                           if (request.offset != kPartBytes) return {};
                                           testing::await([&] { return is_written.load(); });
                                           return std::unexpected(Error(Code::application, "no"));
                                         })
                                         .tee([&](std::uint64_t offset, Bytes) {
                                           if (offset < 2 * kPartBytes || is_written.exchange(true)) return;
                                           std::this_thread::sleep_for(200ms);
                                           is_ended = true;
                                         })));
  const Peer to = client.peer(server.listen_address());
  PutReport report;
  const Payload payload = payload_of(client, pattern(3 * kPartBytes));
  EXPECT_FALSE(to.put("memory", payload, {.report = &report}).get());
  EXPECT_TRUE(is_ended) << "whoever puts something else there now would find it overwritten";
  EXPECT_EQ(report.acknowledged_bytes, kPartBytes);
}

TEST(BulkFailure, UnplaceGivesTheMemoryBackWhileAPutIsUnderWay) {
  Pair pair;
  const std::size_t size = 20 * kPartBytes;
  const Payload payload = payload_of(*pair.client, pattern(size));
  for (int round = 0; round < 5; ++round) {
    auto memory = std::make_unique<std::string>(size, 'o');
    std::atomic<int> records{0};
    std::promise<void> some;
    ASSERT_TRUE(pair.server->place("memory", Placement::memory(bytes_of(*memory)).tee([&](std::uint64_t, Bytes) {
      if (++records == 10 + round) some.set_value();
    })));
    std::promise<Result<PutReport>> done;
    std::thread putter([&] { done.set_value(pair.to().put("memory", payload).get()); });
    some.get_future().wait();
    EXPECT_TRUE(pair.server->unplace("memory"));
    memory.reset();  // the sanitizers see whoever still writes there
    const Result<PutReport> put = done.get_future().get();
    EXPECT_FALSE(put);
    putter.join();
  }
  EXPECT_FALSE(pair.server->unplace("memory"));
}

TEST(BulkFailure, ADroppedOrLatePutStops) {
  Pair pair;
  const std::size_t size = 20 * kPartBytes;
  std::string memory(size, 'o');
  std::promise<void> go_on;
  std::shared_future<void> gone_on = go_on.get_future().share();
  ASSERT_TRUE(pair.server->place(
      "memory", Placement::memory(bytes_of(memory)).tee([&, gone_on](std::uint64_t, Bytes) { gone_on.wait(); })));
  const Payload payload = payload_of(*pair.client, pattern(size));
  PutReport report;
  const Result<PutReport> late = pair.to().put("memory", payload, {.deadline = 100ms, .report = &report}).get();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::timeout);
  EXPECT_EQ(report.acknowledged_bytes, 0u);
  {
    const auto wait_for_one = [&]() -> Task<void> {
      auto put = co_await pair.to().put("memory", payload);
      ADD_FAILURE() << "nobody waits for it";
    };
    Task<void> dropped = wait_for_one();
    dropped.start();
  }
  go_on.set_value();
  EXPECT_TRUE(pair.to().put("memory", payload, {.deadline = 60s}).get());
}

}  // namespace
}  // namespace weir
