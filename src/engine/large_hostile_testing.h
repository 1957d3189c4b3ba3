// LargeHostileSender: a server, an honest client, and a hostile one, which is a Puppet that sends large messages.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/large_testing.h"

namespace weir::engine::testing {

using transfer::IncomingTransfer;
using wire::FrameType;
using wire::Side;

inline constexpr std::uint64_t kMessageBytes = 1u << 20;
inline constexpr std::uint64_t kAllBytes = 2u << 20;
inline constexpr std::uint64_t kPeerBytes = 3u << 19;
inline constexpr std::uint64_t kReplyBytes = 400'000;

inline std::string pattern(std::size_t bytes, std::uint64_t seed = 1) {
  Random random(seed);
  std::string text(bytes, 0);
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

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
    EngineConfig config = test_config(true, 999);
    config.memory = servers_memory;
    config.opens_arrivals = opens_arrivals;
    config.limits.message_bytes = kMessageBytes;
    config.limits.large_request_bytes = kAllBytes;
    config.limits.large_bytes_per_peer = kPeerBytes;
    config.limits.buffer_bytes = Core::kReplyPart * 2 * kMessageBytes;
    config.payloads_are_short = [this] { return is_short; };
    config.limits.calls_per_peer = 256;
    server = net->add(config);
    for (int* client : {&honest, &hostile}) {
      EngineConfig other = test_config(false, static_cast<std::uint16_t>(1'000 + (client == &honest)));
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
      buffer::Sealed* const payload =
          buffer::seal(memory, as_bytes(text), key, buffer::thread_key(), buffer::kRecordBytes, reply_piece_bytes);
      engine.reply_large(request, payload, {.bytes = text.size()}, Pattern::unary, {}, now);
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
    call.method = method_id("take");
    call.peer = engine.connect(net->address(server)).value();
    call.deadline = net->now + std::chrono::seconds(20);
    call.is_large = true;
    crypto::KeyBytes key;
    net->entropy.fill(key);
    buffer::Sealed* const payload = buffer::seal(memory, as_bytes(text), key, buffer::thread_key());
    call.block = transfer::load_cargo(engine.blocks(), payload, {.bytes = text.size()}, Pattern::unary, {});
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
    net->inject(server, net->address(hostile), seal_data(*puppet, frames, slice));
    net->turn(server);
  }
  wire::TransferId id(std::uint32_t slot, std::uint64_t generation = 1) const { return {slot, generation + 1'000}; }
  void open(wire::TransferId name, const wire::CargoFrame& cargo, std::uint8_t depth = 0) {
    say(large_request(name, "take", opening_of(cargo), depth));
  }
  // Opens a message and returns the region that it is given; 0: none.
  std::uint64_t open_and_listen(wire::TransferId name, const wire::CargoFrame& cargo) {
    puppet->listen();
    open(name, cargo);
    net->run_for(std::chrono::milliseconds(1));
    std::uint64_t region = 0;
    for (const auto& grant : frames_in<wire::GrantFrame>(puppet->listen(), FrameType::region_grant)) {
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
  bool opens_arrivals = false;
  std::uint64_t reply_piece_bytes = 0;
  std::unique_ptr<Net> net;
  int server = 0, honest = 0, hostile = 0;
  std::unique_ptr<Puppet> puppet;
};

}  // namespace weir::engine::testing
