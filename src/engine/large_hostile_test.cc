// What an authenticated peer that breaks the rules of large messages can do as their sender: no byte that anyone reads
// changes, what it wrote where it may not is counted, nothing grows, and the others do not notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/large_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::frame_of;
using testing::Frames;
using testing::Net;
using testing::opening_of;
using testing::Puppet;
using testing::TestCall;
using transfer::IncomingTransfer;
using wire::FrameType;
using wire::Side;

constexpr std::uint64_t kMessageBytes = 1u << 20;
constexpr std::uint64_t kAllBytes = 2u << 20;
constexpr std::uint64_t kPeerBytes = 3u << 19;
constexpr std::uint64_t kReplyBytes = 400'000;

std::string pattern(std::size_t bytes, std::uint64_t seed = 1) {
  Random random(seed);
  std::string text(bytes, 0);
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

// A server, an honest client, and a hostile one behind a Puppet.
class LargeHostileSender : public ::testing::Test {
 protected:
  void SetUp() override { connect(&memory); }
  void TearDown() override {
    if (net == nullptr) return;
    expect_the_other_is_well();
    disconnect();
  }
  void connect(buffer::Memory* servers_memory) {
    net = std::make_unique<Net>();
    EngineConfig config = testing::test_config(true, 999);
    config.memory = servers_memory;
    config.limits.message_bytes = kMessageBytes;
    config.limits.large_request_bytes = kAllBytes;
    config.limits.large_bytes_per_peer = kPeerBytes;
    config.limits.buffer_bytes = Core::kReplyPart * 2 * kMessageBytes;
    config.payloads_are_short = [this] { return is_short; };
    config.limits.calls_per_peer = 256;
    server = net->add(config);
    for (int* client : {&honest, &hostile}) {
      EngineConfig other = testing::test_config(false, static_cast<std::uint16_t>(1'000 + (client == &honest)));
      other.memory = &memory;
      *client = net->add(other);
    }
    net->serve_echo(server);
    net->serve(server, "take", [this](Engine& engine, IncomingTransfer& request, Instant now) {
      buffer::Landing* const landing = request.landing();
      if (landing == nullptr) return engine.reply(request, {}, {}, now);
      opened = buffer::open_all(*landing);
      taken.emplace_back(reinterpret_cast<const char*>(landing->body), landing->bytes);
      engine.reply(request, {}, as_bytes(std::string_view("taken")), now);
    });
    net->serve(server, "give", [this](Engine& engine, IncomingTransfer& request, Instant now) {
      crypto::KeyBytes key;
      net->entropy.fill(key);
      const std::string text = pattern(kReplyBytes);
      buffer::Sealed* const payload = buffer::seal(memory, as_bytes(text), key, buffer::thread_key());
      engine.reply_large(request, payload, {.bytes = text.size()}, {}, now);
    });
    for (const int host : {honest, hostile}) {
      TestCall call;
      net->call(host, server, call, "echo", "hello");
      ASSERT_TRUE(net->run_until([&] { return call.completions != 0; }));
      ASSERT_FALSE(call.failed) << call.reply;
    }
    net->run_for(std::chrono::milliseconds(50));
    puppet = std::make_unique<Puppet>(*net, hostile, server);
  }
  void disconnect() {
    for (buffer::Sealed* one : std::exchange(sealed, {})) detail::unpin(one);
    puppet.reset();
    net->run_for(std::chrono::hours(1));
    const Census census = net->engine(server).census();
    EXPECT_EQ(census.writers + census.arrivals + census.regions + census.regions_leaked, 0u);
    EXPECT_EQ(census.incoming + census.blocks + census.reassemblies + census.paths, 0u);
    EXPECT_EQ(census.large_bytes, 0u);
    EXPECT_EQ(memory.taken_bytes(), 0u);
    net.reset();
  }
  void expect_the_other_is_well() {
    const std::string text = pattern(300'000, 99);
    TestCall call;
    honest_call(call, text);
    ASSERT_TRUE(net->run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    EXPECT_TRUE(opened);
    EXPECT_TRUE(taken.back() == text);
  }
  void honest_call(TestCall& call, std::string_view text) {
    Engine& engine = net->engine(honest);
    call.method = testing::method_id("take");
    call.peer = engine.connect(net->address(server)).value();
    call.deadline = net->now + std::chrono::seconds(20);
    call.is_large = true;
    crypto::KeyBytes key;
    net->entropy.fill(key);
    buffer::Sealed* const payload = buffer::seal(memory, as_bytes(text), key, buffer::thread_key());
    call.block = transfer::load_cargo(engine.blocks(), payload, {.bytes = text.size()}, {});
    call.bytes = wire::kCargoBytes;
    engine.submit(call, net->now);
  }

  // Kept until the test ends.
  buffer::Sealed& seal(std::string_view text) {
    crypto::KeyBytes key;
    net->entropy.fill(key);
    sealed.push_back(buffer::seal(memory, as_bytes(text), key, buffer::thread_key()));
    return *sealed.back();
  }
  void say(const Datagram& frame) { puppet->say(Frames().raw(frame)); }
  void say_data(ByteSpan frames, ByteSpan slice) {
    net->inject(server, net->address(hostile), testing::seal_data(*puppet, frames, slice));
    net->turn(server);
  }
  wire::TransferId id(std::uint32_t slot, std::uint64_t generation = 1) const { return {slot, generation + 1'000}; }
  void open(wire::TransferId name, const wire::CargoFrame& cargo, std::uint8_t depth = 0) {
    say(testing::large_request(name, "take", opening_of(cargo), depth));
  }
  // Opens a message and returns the region that it is given; 0: none.
  std::uint64_t open_and_listen(wire::TransferId name, const wire::CargoFrame& cargo) {
    puppet->listen();
    open(name, cargo);
    net->run_for(std::chrono::milliseconds(1));
    std::uint64_t region = 0;
    for (const auto& grant : testing::frames_in<wire::GrantFrame>(puppet->listen(), FrameType::region_grant)) {
      if (grant.side == Side::request && grant.id.packed() == name.packed()) region = grant.region;
    }
    return region;
  }
  void write(std::uint64_t region, std::uint32_t record, std::uint16_t offset, ByteSpan slice,
             const std::byte* tag = nullptr) {
    say_data(frame_of(wire::SliceFrame{.region = region, .record = record, .offset = offset, .tag = tag}), slice);
  }
  void write_all(std::uint64_t region, const buffer::Sealed& payload) {
    for (std::uint64_t at = 0; at < payload.bytes;) {
      const ByteSpan rest = payload.at(at);
      const ByteSpan slice = rest.first(std::min<std::size_t>(rest.size(), 20'000));
      const auto record = static_cast<std::uint32_t>(at / payload.record_bytes);
      write(region, record, static_cast<std::uint16_t>(at % payload.record_bytes), slice,
            slice.size() == rest.size() ? payload.tag_of(record) : nullptr);
      at += slice.size();
    }
  }
  void expect_refused(std::uint64_t region, std::uint32_t record, std::uint16_t offset, std::size_t bytes) {
    const std::uint64_t before = refused();
    write(region, record, offset, as_bytes(std::string(bytes, 'X')));
    EXPECT_EQ(refused(), before + 1) << record << "+" << offset << ", " << bytes;
    EXPECT_NE(puppet->victims_path(), nullptr);
  }
  std::uint64_t refused() { return net->engine(server).events().counters.writes_refused; }
  void expect_thrown_out() {
    EXPECT_EQ(puppet->victims_path(), nullptr);
    net->turn(server);
    EXPECT_TRUE(puppet->was_thrown_out());
  }
  void expect_within_bounds() {
    const Census census = net->engine(server).census();
    EXPECT_LE(census.large_bytes, kAllBytes);
    EXPECT_LE(census.arrivals, 256u);
    EXPECT_LE(memory.taken_bytes(), kAllBytes + census.regions * 2'048 + kAllBytes / 1'000);
    EXPECT_LE(census.frames_in_flight, 8'192u);
  }
  // Stays in touch meanwhile, as somebody does who wants to keep what it has.
  void let_pass(Duration duration) {
    for (const Instant end = net->now + duration; net->now < end;) {
      net->run_for(std::chrono::milliseconds(100));
      puppet->listen();
      puppet->say(Frames().ack(0, puppet->largest_heard).ping());
    }
  }

  buffer::HeapMemory memory{std::uint64_t{1} << 32};
  std::vector<buffer::Sealed*> sealed;
  std::vector<std::string> taken;
  bool opened = false;
  bool is_short = true;  // of memory for payloads
  std::unique_ptr<Net> net;
  int server = 0, honest = 0, hostile = 0;
  std::unique_ptr<Puppet> puppet;
};

TEST_F(LargeHostileSender, CannotWriteOutsideItsRegion) {
  const std::string text = pattern(100'000);
  const buffer::Sealed& payload = seal(text);
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(payload));
  ASSERT_NE(region, 0u);
  expect_refused(region, 1, 100'000 - 61'440, 1);      // just behind its end
  expect_refused(region, 1, 100'000 - 61'440 - 1, 2);  // across it
  expect_refused(region, 2, 0, 1'000);                 // behind it, but in memory that is there
  expect_refused(region, 1'000'000, 0, 1'000);
  expect_refused(region, 0xffffffff, 61'439, 1);
  write_all(region, payload);
  net->turn(server);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(opened);
  EXPECT_TRUE(taken[0] == text);
}

TEST_F(LargeHostileSender, CannotWriteWhereNothingIsOrWasGranted) {
  const buffer::Sealed& payload = seal(pattern(50'000));
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(payload));
  ASSERT_NE(region, 0u);
  const token::RegionId name = token::RegionId::unpack(region);
  expect_refused(0, 0, 0, 10);
  expect_refused(~std::uint64_t{0}, 0, 0, 10);
  expect_refused(token::RegionId{name.slot, name.generation + 1}.packed(), 0, 0, 10);
  expect_refused(token::RegionId{name.slot, name.generation - 1}.packed(), 0, 0, 10);
  expect_refused(token::RegionId{name.slot + 1'000, name.generation}.packed(), 0, 0, 10);
  write_all(region, payload);
  net->turn(server);
  ASSERT_EQ(taken.size(), 1u);
  expect_refused(region, 0, 0, 10);  // complete
}

TEST_F(LargeHostileSender, CannotWriteIntoWhatWasTakenBack) {
  const buffer::Sealed& payload = seal(pattern(50'000));
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(payload));
  let_pass(std::chrono::milliseconds(2'500));  // without a byte: it is idle
  EXPECT_GE(net->engine(server).events().counters.regions_revoked, 1u);
  expect_refused(region, 0, 0, 10);
  say(frame_of(FrameType::request_regions, wire::SideFrame{.side = Side::request, .id = id(1)}));
  net->run_for(std::chrono::milliseconds(1));
  const auto grants = testing::frames_in<wire::GrantFrame>(puppet->listen(), FrameType::region_grant);
  ASSERT_FALSE(grants.empty());
  EXPECT_NE(grants.back().region, region);
  expect_refused(region, 0, 0, 10);
  puppet->say(Frames().cancel(id(1), 0, wire::kCargoBytes));
  expect_refused(grants.back().region, 0, 0, 10);
}

TEST_F(LargeHostileSender, ThatDoesNotAskAgainLosesItsPlace) {
  const buffer::Sealed& payload = seal(pattern(50'000));
  ASSERT_NE(open_and_listen(id(1), testing::cargo_of(payload)), 0u);
  let_pass(std::chrono::milliseconds(2'500));  // without a byte: its region is taken back
  EXPECT_EQ(net->engine(server).census().arrivals, 1u);
  let_pass(Core::kLongestUnasked);
  EXPECT_EQ(net->engine(server).census().arrivals, 0u);
}

// What its replies hold is a share of what all have, and not for long.
TEST_F(LargeHostileSender, ThatFetchesNoRepliesHoldsItsShareForAWhile) {
  const std::size_t fitting = 2 * kMessageBytes / kReplyBytes;
  puppet->listen();
  for (std::uint32_t i = 0; i < 10; ++i) puppet->say(Frames().request(id(i), "give", "x"));
  net->run_for(std::chrono::milliseconds(1));
  const auto heard = puppet->listen();
  EXPECT_EQ(testing::frames_in<wire::ReplyFrame>(heard, FrameType::large_reply).size(), fitting);
  const auto errors = testing::frames_in<wire::ReplyFrame>(heard, FrameType::reply);
  EXPECT_EQ(errors.size(), 10 - fitting);
  for (const wire::ReplyFrame& error : errors) EXPECT_TRUE(error.failed);
  EXPECT_LE(memory.taken_bytes(), 3 * kMessageBytes);
  let_pass(Core::kLongestUnfetched + std::chrono::seconds(5));
  EXPECT_EQ(net->engine(server).census().writers, 0u);
  EXPECT_LT(memory.taken_bytes(), kReplyBytes);
  for (std::uint32_t i = 0; i < fitting; ++i) puppet->say(Frames().request(id(i, 2), "give", "x"));
  net->run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::large_reply).size(), fitting);
}

TEST_F(LargeHostileSender, ThatGrantsAndNeverSaysThatItHasAReplyHoldsItForAWhile) {
  puppet->say(Frames().request(id(0), "give", "x"));
  net->run_for(std::chrono::milliseconds(1));
  ASSERT_EQ(testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::large_reply).size(), 1u);
  say(frame_of(wire::GrantFrame{
      .side = Side::reply, .id = id(0), .region = 77, .capacity = kReplyBytes, .in_flight_bytes = 1u << 20}));
  for (int i = 0; i < 100; ++i) {
    puppet->say(Frames().ack(0, puppet->victims_path()->next_number - 1));
    net->run_for(std::chrono::microseconds(100));
  }
  EXPECT_GE(net->engine(server).events().counters.payload_bytes_sent, kReplyBytes);
  EXPECT_EQ(net->engine(server).census().writers, 1u);
  // The first look finds that it went on, the second that it does not.
  let_pass(2 * Core::kLongestUnfetched + std::chrono::seconds(10));
  EXPECT_EQ(net->engine(server).census().writers, 0u);
}

TEST_F(LargeHostileSender, MayHaveManyRepliesWhileMemoryIsPlentiful) {
  is_short = false;
  puppet->listen();
  for (std::uint32_t i = 0; i < 10; ++i) puppet->say(Frames().request(id(i), "give", "x"));
  net->run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::large_reply).size(), 10u);
}

TEST_F(LargeHostileSender, CannotTouchTheRegionOfAnother) {
  const std::string text = pattern(900'000, 7);
  TestCall call;
  net->mtu = 1'472;
  honest_call(call, text);
  auto& regions = net->core(server).regions;
  std::uint64_t region = 0;
  ASSERT_TRUE(net->run_until([&] {
    net->core(server).paths.for_each([&](Path& path) {
      if (path.large == nullptr) return;
      regions.for_each_of_path(path.large->regions, [&](token::Region& one) {
        if (one.is_bound() && one.coverage.prefix() > 100'000) region = one.id;
      });
    });
    return region != 0;
  }));
  for (std::uint32_t record = 0; record < 14; ++record) expect_refused(region, record, 0, 20'000);
  // As a token it is of no use either: the message gets a region of its own.
  const buffer::Sealed& payload = seal(pattern(50'000));
  wire::CargoFrame cargo = testing::cargo_of(payload);
  cargo.region = region;
  const std::uint64_t own = open_and_listen(id(1), cargo);
  EXPECT_NE(own, 0u);
  EXPECT_NE(own, region);
  ASSERT_TRUE(net->run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(opened);
  EXPECT_TRUE(taken[0] == text);
}

TEST_F(LargeHostileSender, ASliceAcrossItsRecordsEndIsAViolation) {
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(seal(pattern(200'000))));
  write(region, 0, 61'439, as_bytes(std::string(2, 'X')));
  expect_thrown_out();
}

TEST_F(LargeHostileSender, ASliceFrameInAnOrdinaryPacketIsAViolation) {
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(seal(pattern(200'000))));
  say(frame_of(wire::SliceFrame{.region = region}));
  expect_thrown_out();
}

TEST_F(LargeHostileSender, TwoSliceFramesInOnePacketAreAViolation) {
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(seal(pattern(200'000))));
  const Datagram one = frame_of(wire::SliceFrame{.region = region});
  say_data(Frames().raw(one).raw(one).bytes(), as_bytes(std::string(10, 'X')));
  expect_thrown_out();
}

TEST_F(LargeHostileSender, ADescriptionThatMakesNoSenseIsAViolation) {
  const wire::CargoFrame fine{.body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440};
  std::vector<wire::CargoFrame> wrong(14, fine);
  wrong[0].body_bytes = 0;
  wrong[1].body_bytes = wrong[1].payload_bytes = std::uint64_t{1} << 63;
  wrong[2].body_bytes = wrong[2].payload_bytes = ~std::uint64_t{0};
  wrong[3].body_bytes = 100'001;  // more than the payload
  wrong[4].body_bytes = 99'999;   // neither whole records nor its end
  wrong[5].first_record = 1;
  wrong[6].first_record = ~std::uint64_t{0};
  wrong[7].first_record = (std::uint64_t{1} << 63) / 61'440;
  wrong[8].record_bytes = 0;
  wrong[9].record_bytes = 1;
  wrong[10].record_bytes = 1u << 31;
  wrong[11].adopted = true;
  wrong[11].first_record = 1;  // its binding ends behind its end
  wrong[12].adopted = true;
  wrong[12].payload_bytes = ~std::uint64_t{0};
  wrong[13].payload_bytes = ~std::uint64_t{0};
  disconnect();
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    connect(&memory);
    open(id(1), wrong[i]);
    EXPECT_EQ(puppet->victims_path(), nullptr) << i;
    disconnect();
  }
  connect(&memory);
  say(testing::large_request(id(1), "take", opening_of(fine, std::string(1'025, 'h'))));  // too long a header
  expect_thrown_out();
}

TEST_F(LargeHostileSender, IsRefusedWhatNobodyCouldHaveMemoryFor) {
  const std::uint64_t huge = std::uint64_t{1} << 44;
  open(id(1), {.body_bytes = huge, .payload_bytes = huge, .record_bytes = 4'096});
  net->run_for(std::chrono::milliseconds(1));
  EXPECT_NE(puppet->victims_path(), nullptr);
  const auto replies = testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::reply);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_TRUE(replies[0].failed);
  EXPECT_EQ(memory.taken_bytes(), 0u);
}

TEST_F(LargeHostileSender, WithoutEndStaysWithinTheBounds) {
  const wire::CargoFrame cargo{
      .body_bytes = 400'000, .payload_bytes = 400'000, .record_bytes = 61'440, .wants_token = true};
  for (std::uint32_t slot = 0; slot < 200; ++slot) {
    open(id(slot), cargo, slot % 5);
    ASSERT_NE(puppet->victims_path(), nullptr) << slot;
    const Census census = net->engine(server).census();
    EXPECT_LE(census.large_bytes, 5 * kPeerBytes);  // levels of nesting have purses of their own
  }
  EXPECT_GT(net->engine(server).events().counters.regions_exhausted, 0u);
}

TEST_F(LargeHostileSender, ThatOpensAndCancelsWithoutEndLeavesNothingToBeSaid) {
  const wire::CargoFrame cargo{
      .body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440, .wants_token = true};
  const Datagram opening = opening_of(cargo);
  for (std::uint64_t round = 1; round <= 400; ++round) {  // and never acknowledges anything
    Frames frames;
    for (std::uint32_t slot = 0; slot < 100; ++slot) {
      frames.raw(testing::large_request(id(slot, round), "take", opening))
          .cancel(id(slot, round), 0, wire::kCargoBytes);
    }
    puppet->say(frames);
    if (puppet->victims_path() == nullptr) break;  // it may be thrown out
    expect_within_bounds();
  }
}

TEST_F(LargeHostileSender, WhoseRegionIsNeverWrittenLosesItToWhoWaits) {
  const wire::CargoFrame cargo{.body_bytes = kMessageBytes, .payload_bytes = kMessageBytes, .record_bytes = 61'440};
  ASSERT_NE(open_and_listen(id(1), cargo), 0u);
  TestCall calls[2];
  std::string texts[2] = {pattern(kMessageBytes, 5), pattern(kMessageBytes, 6)};
  for (int i = 0; i < 2; ++i) honest_call(calls[i], texts[i]);
  net->run_for(std::chrono::milliseconds(200));
  EXPECT_GT(net->engine(server).census().arrivals, 0u);
  let_pass(std::chrono::seconds(3));
  for (TestCall& call : calls) {
    EXPECT_EQ(call.completions, 1);
    EXPECT_FALSE(call.failed) << call.reply;
  }
  expect_within_bounds();
}

TEST_F(LargeHostileSender, ThatSpeaksOfWhatNeverWasIsIgnored) {
  for (const FrameType type : {FrameType::request_regions, FrameType::transfer_ack, FrameType::region_exhausted}) {
    for (const Side side : {Side::request, Side::reply}) {
      for (const std::uint32_t slot : {0u, 1u, 255u, wire::kMaxSlots - 1}) {
        say(frame_of(type, wire::SideFrame{.side = side, .id = id(slot), .value = ~0u}));
      }
    }
  }
  for (const Side side : {Side::request, Side::reply, Side::none}) {
    say(frame_of(wire::RevokeFrame{.side = side, .id = id(3), .region = 77}));
    say(frame_of(wire::GrantFrame{.side = side, .id = id(3), .region = 77, .capacity = ~0ull, .lifetime_ms = ~0u}));
  }
  EXPECT_NE(puppet->victims_path(), nullptr);
}

TEST_F(LargeHostileSender, ThatSendsGarbageIsNotBelieved) {
  const std::string text = pattern(100'000);
  const buffer::Sealed& payload = seal(text);
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(payload));
  write_all(region, seal(pattern(100'000, 2)));  // under another key
  net->turn(server);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_FALSE(opened);
  EXPECT_TRUE(std::all_of(taken[0].begin(), taken[0].begin() + 61'440, [](char c) { return c == 0; }));
}

TEST_F(LargeHostileSender, IsRefusedByAnEngineThatHasNoMemoryForLargeMessages) {
  disconnect();
  connect(nullptr);
  open(id(1), {.body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440});
  net->run_for(std::chrono::milliseconds(1));
  const auto replies = testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::reply);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_TRUE(replies[0].failed);
  disconnect();
}

TEST_F(LargeHostileSender, IsRefusedWhenTheSystemHasLessMemoryThanWasPromised) {
  disconnect();
  buffer::HeapMemory little{150'000};
  connect(&little);
  const wire::CargoFrame cargo{.body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440};
  EXPECT_NE(open_and_listen(id(1), cargo), 0u);
  open(id(2), cargo);
  net->run_for(std::chrono::milliseconds(1));
  const auto replies = testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::reply);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].part.id.slot, 2u);
  EXPECT_TRUE(replies[0].failed);
  disconnect();
}

}  // namespace
}  // namespace weir::engine
