// What an authenticated peer that breaks the rules of large messages can do as their sender: no byte that anyone reads
// changes, what it wrote where it may not is counted, nothing grows, and the others do not notice.
#include <string>

#include "engine/large_hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::frame_of;
using testing::Frames;
using testing::LargeHostileSender;
using testing::opening_of;
using testing::pattern;
using testing::TestCall;
using wire::FrameType;
using wire::Side;

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

// What its replies hold is a share of what all have, and not for long.
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
  std::vector<wire::CargoFrame> wrong(16, fine);
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
  wrong[14].pattern = static_cast<Pattern>(7);
  wrong[15].pattern = static_cast<Pattern>(255);
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

TEST_F(LargeHostileSender, ThatOpensARequestTwiceIsAskedAboutOnce) {
  int asked = 0;
  const Handler handler{.run = [](void*, IncomingTransfer&, Instant) { FAIL() << "nothing was written"; },
                        .context = &asked,
                        .admit = [](void* context, const IncomingTransfer&, const Opening&) -> Result<Route> {
                          ++*static_cast<int*>(context);
                          return Route{};
                        }};
  ASSERT_TRUE(net->engine(server).serve(testing::method_id("ask"), "ask", handler));
  const wire::CargoFrame cargo = testing::cargo_of(seal(pattern(200'000)));
  wire::CargoFrame other = cargo;
  other.pattern = Pattern::broadcast;
  for (const wire::CargoFrame& each : {cargo, cargo, other}) {
    say(testing::large_request(id(1), "ask", opening_of(each)));
  }
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(net->engine(server).census().arrivals, 1u);
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

}  // namespace
}  // namespace weir::engine
