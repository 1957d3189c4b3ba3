// What the application sealed itself has no records that we could verify: every packet of it is authenticated whole,
// and so is the part that it is bound by.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "buffer/buffer_pool.h"
#include "buffer/holds.h"
#include "engine/large_hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::LargeHostileSender;
using testing::Pair;
using testing::pattern;
using testing::TestCall;

constexpr std::uint64_t kBindingAt = 100, kBindingBytes = 32;
constexpr std::size_t kBytes = 150'000;

wire::CargoFrame adopted_cargo(std::string_view text) {
  return {.body_bytes = text.size(),
          .payload_bytes = kBindingBytes,
          .first_record = kBindingAt,
          .record_bytes = buffer::kRecordBytes,
          .adopted = true,
          .key = buffer::binding_digest(as_bytes(text).subspan(kBindingAt, kBindingBytes))};
}

class Adopted : public ::testing::Test {
 protected:
  Adopted() {
    pair.mtu = 1'472;
    pair.serve("take", [this](Engine& engine, transfer::IncomingTransfer& request, Instant now) {
      buffer::Landing* const landing = request.landing();
      ASSERT_NE(landing, nullptr);
      if (!buffer::open_all(*landing)) return engine.fail(request, Code::unauthenticated, "does not open", now);
      taken.emplace_back(reinterpret_cast<const char*>(landing->body), landing->bytes);
      engine.reply(request, {}, as_bytes(std::string_view("taken")), now);
    });
  }
  void call(TestCall& one) {
    Buffer page = *pool->try_allocate(text.size());
    std::copy_n(as_bytes(text).data(), text.size(), page.span().data());
    const Payload payload = *buffer::adopt(std::move(page), {.offset = kBindingAt, .length = kBindingBytes});
    buffer::Sealed* const sealed = payload.sealed();
    pair.call_large(one, "take", buffer::lend(*sealed, buffer::pieces_of(*sealed, 0, sealed->bytes)),
                    {.bytes = text.size()});
  }
  const Counters& counters() { return pair.server().events().counters; }

  const std::string text = pattern(kBytes);
  std::shared_ptr<buffer::BufferPool> pool =
      buffer::BufferPool::create(std::make_shared<buffer::HeapMemory>(std::uint64_t{1} << 30), {.bytes = 1u << 30});
  Pair pair;
  std::vector<std::string> taken;
};

// Its head, its slice (far from the binding, too) and its tag, in flight: as if it had been lost.
TEST_F(Adopted, APacketThatSomebodyChangedOnTheWayIsRejected) {
  constexpr std::size_t kHead = wire::kHeaderBytes + wire::kTextLengthBytes;
  std::size_t packets = 0, altered = 0;
  pair.on_wire = [&](int from, MutableByteSpan datagram) {
    if (from != 0 || datagram.size() < 1'000 || !wire::decode_header(datagram.data()).is_data) return;
    const std::size_t number = packets++;
    if (number % 3 != 0) return;
    const std::size_t head_bytes = kHead + load<std::uint16_t>(datagram.data() + wire::kHeaderBytes) + wire::kTagBytes;
    const std::size_t places[] = {kHead, head_bytes - 1, head_bytes, (head_bytes + datagram.size()) / 2,
                                  datagram.size() - 1};
    datagram[places[number / 3 % std::size(places)]] ^= std::byte{1};
    ++altered;
  };
  TestCall one;
  call(one);
  ASSERT_TRUE(pair.run_until([&] { return one.completions != 0; }));
  EXPECT_FALSE(one.failed) << one.reply;
  EXPECT_GT(altered, 20u);
  EXPECT_EQ(counters().packets_rejected, altered);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(taken[0] == text);
}

// A sender that holds the keys of its path, and a body that is not what its own opening says.
TEST_F(LargeHostileSender, WhoseAdoptedBodyIsNotWhatItsDigestSaysIsNotBelieved) {
  const std::string text = pattern(kBytes);
  std::uint64_t slot = 0;
  for (const std::uint64_t at : {kBindingAt, kBindingAt + kBindingBytes / 2, kBindingAt + kBindingBytes - 1}) {
    std::string other = text;
    other[at] = static_cast<char>(other[at] ^ 1);
    const std::uint64_t region = open_and_listen(id(static_cast<std::uint32_t>(++slot)), adopted_cargo(text));
    ASSERT_NE(region, 0u);
    for (std::size_t done = 0; done < other.size(); done += 20'480) {
      write(region, static_cast<std::uint32_t>(done / buffer::kRecordBytes),
            static_cast<std::uint16_t>(done % buffer::kRecordBytes),
            as_bytes(other).subspan(done, std::min<std::size_t>(20'480, other.size() - done)));
    }
    net->turn(server);
    ASSERT_EQ(taken.size(), slot);
    EXPECT_FALSE(opened) << at;
    EXPECT_TRUE(taken.back() == std::string(text.size(), '\0')) << "nobody sees a byte of it";
  }
  // The same, unchanged: what was refused was the difference.
  const std::uint64_t region = open_and_listen(id(99), adopted_cargo(text));
  for (std::size_t done = 0; done < text.size(); done += 20'480) {
    write(region, static_cast<std::uint32_t>(done / buffer::kRecordBytes),
          static_cast<std::uint16_t>(done % buffer::kRecordBytes),
          as_bytes(text).subspan(done, std::min<std::size_t>(20'480, text.size() - done)));
  }
  net->turn(server);
  EXPECT_TRUE(opened);
  EXPECT_TRUE(taken.back() == text);
}

// Whoever has the data, as a fellow receiver of a broadcast has, but not the keys of this path.
TEST_F(LargeHostileSender, ASliceWithoutThePairsKeyIsNoSlice) {
  const std::string text = pattern(kBytes);
  const std::uint64_t region = open_and_listen(id(1), adopted_cargo(text));
  ASSERT_NE(region, 0u);
  const std::uint64_t rejected = net->engine(server).events().counters.packets_rejected;
  Datagram packet =
      testing::seal_data(*puppet, testing::frame_of(wire::SliceFrame{.region = region}), as_bytes(text).first(20'480));
  packet.back() ^= std::byte{1};  // another body under the tag of this one
  net->inject(server, net->address(hostile), packet);
  net->turn(server);
  EXPECT_EQ(net->engine(server).events().counters.packets_rejected, rejected + 1);
  const token::Region* const granted = net->core(server).regions.find(region);
  ASSERT_NE(granted, nullptr);
  EXPECT_EQ(granted->coverage.bytes(), 0u);
  puppet->say(testing::Frames().cancel(id(1), 0, wire::kCargoBytes));
}

}  // namespace
}  // namespace weir::engine
