// An authenticated peer that breaks the rules of large messages on a network that loses and reorders, beside an honest
// one: what everybody reads is what was sent, and nothing grows.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/large_hostile_testing.h"

namespace weir::engine {
namespace {

using testing::cargo_of;
using testing::Datagram;
using testing::frame_of;
using testing::Frames;
using testing::kAllBytes;
using testing::LargeHostileSender;
using testing::pattern;
using testing::TestCall;
using wire::FrameType;
using wire::Side;

class LargeHostileSenderWithLoss : public LargeHostileSender {
 protected:
  void SetUp() override {
    connect(&servers);
    net->mtu = 1'472;
    net->loss = 0.1;
    net->after_turn = [this](int) {
      for (const int host : {server, honest}) shuffle(host);
    };
  }
  // The network is itself again before it is looked at what is left.
  void TearDown() override {
    net->loss = 0;
    net->after_turn = nullptr;
    LargeHostileSender::TearDown();
    EXPECT_EQ(servers.taken_bytes(), 0u);
  }
  // Now and then a datagram overtakes others; when something arrives stays as it is.
  void shuffle(int host) {
    auto& box = net->inbox(host);
    for (std::size_t i = 1; i < box.size(); ++i) {
      if (!dice.chance(0.2)) continue;
      auto& other = box[i - 1 - dice.below(std::min<std::uint64_t>(i, 8))];
      std::swap(other.from, box[i].from);
      std::swap(other.bytes, box[i].bytes);
      std::swap(other.ecn, box[i].ecn);
      ++overtaken;
    }
  }
  // What the hostile one sends may be lost, come twice, and come late.
  void send(Datagram packet) {
    if (dice.chance(0.1)) return;
    if (dice.chance(0.1)) late.push_back(packet);
    if (dice.chance(0.2)) {
      late.push_back(std::move(packet));
      return;
    }
    net->inject(server, net->address(hostile), std::move(packet));
    if (!late.empty() && dice.chance(0.3)) {
      net->inject(server, net->address(hostile), std::exchange(late[dice.below(late.size())], late.back()));
      late.pop_back();
    }
  }
  void send_slice(std::uint64_t region, std::uint32_t record, std::uint16_t offset, std::size_t bytes) {
    const Datagram frame = frame_of(wire::SliceFrame{.region = region, .record = record, .offset = offset});
    send(testing::seal_data(*puppet, frame, as_bytes(std::string(bytes, 'X'))));
  }
  void send_frame(const Datagram& frame) { send(puppet->seal(frame)); }
  // Of the honest one.
  std::uint64_t foreign_region() {
    std::uint64_t region = 0;
    net->core(server).paths.for_each([&](Path& path) {
      if (path.large == nullptr || &path == puppet->victims_path()) return;
      net->core(server).regions.for_each_of_path(path.large->regions, [&](token::Region& one) { region = one.id; });
    });
    return region;
  }
  void expect_bounded() {
    const Census census = net->engine(server).census();
    EXPECT_LE(census.large_bytes, kAllBytes);
    EXPECT_LE(census.arrivals, 256u);
    EXPECT_LE(census.regions, 1'024u);
    EXPECT_LE(servers.taken_bytes(), kAllBytes + census.regions * 2'048 + kAllBytes / 1'000);
    EXPECT_LE(census.frames_in_flight, 2 * 8'192u);
    EXPECT_EQ(census.regions_leaked, 0u);
  }
  std::uint64_t refused(token::WriteRefusal why) {
    return net->core(server).regions.counters().refused[static_cast<std::size_t>(why)];
  }

  buffer::HeapMemory servers{std::uint64_t{1} << 32};
  Random dice{7};
  std::vector<Datagram> late;
  std::uint64_t overtaken = 0;
  std::vector<std::unique_ptr<TestCall>> calls;
};

TEST_F(LargeHostileSenderWithLoss, ChangesNothingThatAnybodyReads) {
  const wire::CargoFrame cargo{
      .body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440, .wants_token = true};
  std::uint64_t own = 0, generation = 0;
  int honest_calls = 0, hostile_frames = 0;
  constexpr int kRounds = 120;
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = pattern(200'000 + 300 * static_cast<std::size_t>(round), static_cast<unsigned>(round));
    const std::size_t before = taken.size();
    TestCall& call = *calls.emplace_back(std::make_unique<TestCall>());
    honest_call(call, text);
    for (int i = 0; i < 20'000 && call.completions == 0; ++i) {
      net->step();
      if (i % 3 != 0) continue;
      ASSERT_NE(puppet->victims_path(), nullptr) << "nothing of this is a violation";
      for (const auto& grant : testing::frames_in<wire::GrantFrame>(puppet->listen(), FrameType::region_grant)) {
        own = grant.region;
      }
      const token::RegionId name = token::RegionId::unpack(own);
      const std::uint64_t foreign = foreign_region();
      ++hostile_frames;
      const std::uint64_t what = dice.below(10);
      if (foreign == 0 && (what == 3 || what == 6 || what == 7)) continue;
      switch (what) {
        case 0:
          send_frame(testing::large_request(id(static_cast<std::uint32_t>(dice.below(20)), ++generation), "take",
                                            testing::opening_of(cargo)));
          break;
        case 1:
          send_slice(own, 1, 100'000 - 61'440, 1);  // behind its end
          break;
        case 2:
          send_slice(own, static_cast<std::uint32_t>(dice.next()), 0, 1'000);
          break;
        case 3:
          send_slice(foreign, static_cast<std::uint32_t>(dice.below(4)), static_cast<std::uint16_t>(dice.below(60'000)),
                     1'000);
          break;
        case 4:
          send_slice(token::RegionId{name.slot, name.generation - 1}.packed(), 0, 0, 1'000);
          break;
        case 5:
          send_slice(token::RegionId{name.slot, name.generation + 1}.packed(), 0, 0, 1'000);
          break;
        case 6:  // of what is another's, in every way there is to speak of it
          send_frame(frame_of(wire::RangeAckFrame{.side = Side::request, .id = id(1), .region = foreign, .bytes = 1}));
          send_frame(frame_of(wire::RevokeFrame{.side = Side::request, .id = id(1), .region = foreign}));
          send_frame(frame_of(FrameType::transfer_ack, wire::SideFrame{.side = Side::request, .id = id(1)}));
          break;
        case 7: {  // the generation of a transfer that was there already, with a foreign region for its token
          wire::CargoFrame with_token = cargo;
          with_token.region = foreign;
          send_frame(testing::large_request(id(1, 1), "take", testing::opening_of(with_token)));
          break;
        }
        default:
          for (std::uint32_t slot = 0; slot < 20; ++slot) {
            send_frame(frame_of(FrameType::request_regions, wire::SideFrame{.side = Side::request, .id = id(slot)}));
          }
          break;
      }
      if (i % 30 == 0) send_frame(Frames().ack(0, puppet->largest_heard).bytes());
      expect_bounded();
    }
    ASSERT_EQ(call.completions, 1) << round;
    EXPECT_FALSE(call.failed) << round << ": " << call.reply;
    EXPECT_EQ(std::count(taken.begin() + static_cast<std::ptrdiff_t>(before), taken.end(), text), 1) << round;
    ++honest_calls;
  }
  EXPECT_EQ(honest_calls, kRounds);
  EXPECT_GT(hostile_frames, 1'000);
  EXPECT_GT(overtaken, 100u);
  for (const auto why : {token::WriteRefusal::unknown, token::WriteRefusal::revoked, token::WriteRefusal::foreign,
                         token::WriteRefusal::outside}) {
    EXPECT_GT(refused(why), 0u) << static_cast<int>(why);
  }
}

// It has its region and asks for it again, and again, and acknowledges nothing.
TEST_F(LargeHostileSenderWithLoss, ThatAsksForOneRegionWithoutEndGetsOne) {
  const buffer::Sealed& payload = seal(pattern(100'000));
  std::uint64_t region = 0;
  for (int i = 0; i < 100 && region == 0; ++i) region = open_and_listen(id(1), cargo_of(payload));
  ASSERT_NE(region, 0u);
  const std::uint64_t granted = net->engine(server).events().counters.regions_granted;
  const Frames ask =
      Frames().raw(frame_of(FrameType::request_regions, wire::SideFrame{.side = Side::request, .id = id(1)}));
  for (int i = 0; i < 10'000; ++i) {
    send(puppet->seal(ask.bytes()));
    if (i % 100 == 0) net->run_for(std::chrono::microseconds(100));
    if (puppet->victims_path() == nullptr) break;  // it may be thrown out
    if (i % 100 == 0) expect_bounded();
  }
  EXPECT_EQ(net->engine(server).events().counters.regions_granted, granted);
  EXPECT_LE(net->engine(server).census().regions, 2u);
  EXPECT_EQ(net->engine(server).census().arrivals, 1u);
}

}  // namespace
}  // namespace weir::engine
