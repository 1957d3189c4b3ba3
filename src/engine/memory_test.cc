// What the engine takes from the heap: per idle peer, per outstanding call, and per call in the steady state (nothing).
#include <gtest/gtest.h>

#include <cstdio>

#include "engine/allocation_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Net;
using testing::TestCall;
using transfer::IncomingTransfer;
using weir::testing::Heap;

constexpr double kIdlePeerBudget = 2'048;  // with a part of the model of the link that 256 of them share
constexpr double kCallBudget = 256;

// Slabs grow by whole chunks, so that only whole chunks tell what one object costs.
constexpr int kPeers = 512;

void print_breakdown() {
  std::printf(
      "sizeof: Path %zu (keys %zu, replay %zu, received %zu, loss %zu, congestion %zu, mtu %zu, frames 2 x %zu, "
      "replies %zu, accounts %zu, credit %zu, timer %zu), Peer %zu (queues 2 x %zu)\n",
      sizeof(Path), sizeof(PathKeys), sizeof(peer::ReplayWindow), sizeof(recovery::AckRanges),
      sizeof(recovery::LossDetector), sizeof(recovery::PathController), sizeof(recovery::MtuSearch), sizeof(FrameRing),
      sizeof(Path::replies), sizeof(Path::accounts), sizeof(Path::credit), sizeof(schedule::Timer), sizeof(Peer),
      sizeof(decltype(Peer::queue)::Queue));
  std::printf("sizeof: OutgoingCall %zu, IncomingTransfer %zu, IncomingSlot %zu, SentPacket %zu, SentFrame %zu\n",
              sizeof(transfer::OutgoingCall), sizeof(IncomingTransfer), sizeof(IncomingSlot),
              sizeof(recovery::SentPacket), sizeof(SentFrame));
}

// A wire of nothing but copies: engines without a harness that allocates.
class Wire {
 public:
  Wire() : buffer_(1 << 20) { trains_.reserve(256); }
  void carry(Engine& from, const Address& sender, Engine& to, Instant now, std::size_t mtu) {
    from.on_timeout(now);
    from.deliver(now);
    trains_.clear();
    from.collect(trains_, now);
    for (const Train& train : trains_) {
      for (std::size_t at = 0; at < train.bytes.size(); at += train.segment_size) {
        const std::size_t size = std::min<std::size_t>(train.segment_size, train.bytes.size() - at);
        if (size > mtu) continue;
        std::memcpy(buffer_.data(), train.bytes.data() + at, size);
        to.on_datagram({buffer_.data(), size}, sender, train.ecn, nullptr, now);
        to.deliver(now);
      }
    }
  }

 private:
  std::vector<Train> trains_;
  std::vector<std::byte> buffer_;
};

TEST(Memory, AnIdlePeerTakesAtMostTwoKibibytesOnEachSide) {
  if (!Heap::counts_bytes) return;  // a sanitizer's heap has a price of its own
  print_breakdown();
  // One engine with many peers at a time: once it calls, once it is called.
  for (const bool calls : {true, false}) {
    testing::TestEntropy entropy(1);
    Random random(1);
    Instant now{1'000'000'000};
    const Address address = Address::v4(0x0a000001, 1);
    Engine many(testing::test_config(!calls, 1), entropy, nullptr, 1, now);
    const Handler echo{
        [](void* context, IncomingTransfer& request, Instant at) {
          static_cast<Engine*>(context)->reply(request, {}, {request.delivery.request, request.bytes}, at);
        },
        &many};
    (void)many.serve(7, "echo", echo);
    Wire wire;
    const auto meet = [&](int first, int count) {
      for (int i = first; i < first + count; ++i) {
        const Address other_address = Address::v4(0x0b000000 + static_cast<std::uint32_t>(i), 2);
        Engine other(testing::test_config(calls, 2), entropy, nullptr, 1, now);
        const Handler other_echo{echo.run, &other};
        (void)other.serve(7, "echo", other_echo);
        // A few calls at once, and again, as an ordinary peer would make.
        for (int round = 0; round < 3; ++round) {
          TestCall call[8];
          Engine& caller = calls ? many : other;
          for (TestCall& one : call) {
            one.method = 7;
            one.peer = caller.connect(calls ? other_address : address).value();
            one.deadline = now + std::chrono::seconds(10);
            one.bytes = 32;
            caller.submit(one, now);
          }
          for (int turn = 0; turn < 200; ++turn) {
            now = now + std::chrono::microseconds(20);
            wire.carry(many, address, other, now, 1'472);
            now = now + std::chrono::microseconds(20);
            wire.carry(other, other_address, many, now, 1'472);
          }
          for (TestCall& one : call) ASSERT_EQ(one.completions, 1);
        }
      }
    };
    const auto fall_idle = [&] {
      std::vector<Train> nothing;
      for (int i = 0; i < 40; ++i) {
        now = now + std::chrono::milliseconds(100);
        many.on_timeout(now);
        nothing.clear();
        many.collect(nothing, now);
      }
    };
    meet(0, kPeers);
    fall_idle();
    const std::int64_t before = Heap::live_bytes;
    meet(kPeers, kPeers);
    fall_idle();
    const double each = static_cast<double>(Heap::live_bytes - before) / kPeers;
    std::printf("an idle peer that %s: %.0f bytes\n", calls ? "is called" : "calls", each);
    EXPECT_EQ(many.census().paths, 2u * kPeers);
    EXPECT_LE(each, kIdlePeerBudget);
  }
}

TEST(Memory, AnOutstandingSmallCallTakesAtMost256BytesOnEachSide) {
  if (!Heap::counts_bytes) return;
  constexpr std::size_t kCalls = 4'096 - 4 * 128;  // what the deepest level leaves to the outermost
  testing::TestEntropy entropy(1);
  Instant now{1'000'000'000};
  const Address addresses[2] = {Address::v4(0x0a000001, 1), Address::v4(0x0a000002, 2)};
  Engine client(testing::test_config(false, 1), entropy, nullptr, 1, now);
  Engine server(testing::test_config(true, 2), entropy, nullptr, 2, now);
  std::vector<IncomingTransfer*> held;
  held.reserve(kCalls + 64);
  const Handler hold{[](void* context, IncomingTransfer& request, Instant) {
                       static_cast<std::vector<IncomingTransfer*>*>(context)->push_back(&request);
                     },
                     &held};
  (void)server.serve(7, "hold", hold);
  Wire wire;
  std::vector<std::unique_ptr<TestCall>> calls;
  calls.reserve(kCalls + 64);
  std::int64_t client_bytes = 0, server_bytes = 0;
  const auto run = [&](int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      std::int64_t start = Heap::live_bytes;
      now = now + std::chrono::microseconds(20);
      wire.carry(client, addresses[0], server, now, 1'472);
      // What grew while the wire ran from the client to the server is shared; the two are told apart below.
      server_bytes += Heap::live_bytes - start;
      start = Heap::live_bytes;
      now = now + std::chrono::microseconds(20);
      wire.carry(server, addresses[1], client, now, 1'472);
      client_bytes += Heap::live_bytes - start;
    }
  };
  const auto submit = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      calls.push_back(std::make_unique<TestCall>());
      TestCall& call = *calls.back();
      call.method = 7;
      call.peer = client.connect(addresses[1]).value();
      call.deadline = now + std::chrono::hours(1);
      call.bytes = 32;
      client.submit(call, now);
    }
  };
  submit(32);
  run(2'000);
  ASSERT_EQ(held.size(), 32u);
  const std::size_t more = kCalls - 32;
  // The calls themselves are the callers': what an engine lends is the record, whatever its owner wraps around it.
  client_bytes = server_bytes = 0;
  submit(more);
  run(2'000);
  ASSERT_EQ(held.size(), kCalls);
  const double engines = static_cast<double>(client_bytes + server_bytes) / static_cast<double>(more);
  const double record = sizeof(transfer::OutgoingCall) - 32;  // without its payload
  const double server_record = static_cast<double>(sizeof(IncomingTransfer)) - 32;
  std::printf("an outstanding call: %.0f bytes in both engines, of which the server's record %zu; the caller's %zu\n",
              engines, sizeof(IncomingTransfer), sizeof(transfer::OutgoingCall));
  // Both engines' heaps are one number here, so that the two budgets are one as well.
  EXPECT_LE(engines + record - 32, 2 * kCallBudget);
  EXPECT_LE(record, kCallBudget);
  EXPECT_LE(server_record, kCallBudget);
  for (IncomingTransfer* request : held) server.reply(*request, {}, {}, now);
  run(2'000);
  for (auto& call : calls) EXPECT_EQ(call->completions, 1);
}

struct LoopCall : transfer::OutgoingCall {
  Engine* engine = nullptr;
  Instant* now = nullptr;
  std::uint64_t* done = nullptr;
  bool* stop = nullptr;
};

void submit_again(LoopCall& call) {
  if (call.bytes > transfer::OutgoingCall::kInlineBytes) call.block = call.engine->blocks().acquire(call.bytes);
  call.deadline = *call.now + std::chrono::seconds(10);
  call.engine->submit(call, *call.now);
}

TEST(Memory, ACallAllocatesNothingInTheSteadyState) {
  for (const std::size_t mtu : {std::size_t{1'472}, std::size_t{65'507}}) {
    for (const std::uint32_t size : {32u, 4'096u}) {
      SCOPED_TRACE(std::to_string(size) + " bytes at " + std::to_string(mtu));
      testing::TestEntropy entropy(1);
      Instant now{1'000'000'000};
      const Address addresses[2] = {Address::v4(0x0a000001, 1), Address::v4(0x0a000002, 2)};
      EngineConfig configs[2] = {testing::test_config(false, 1), testing::test_config(true, 2)};
      for (EngineConfig& config : configs) {
        config.datagram_bytes = mtu;
        config.rotate_packets = 1u << 22;
      }
      Engine client(configs[0], entropy, nullptr, 1, now);
      Engine server(configs[1], entropy, nullptr, 2, now);
      const Handler echo{
          [](void* context, IncomingTransfer& request, Instant at) {
            static_cast<Engine*>(context)->reply(request, {}, {request.delivery.request, request.bytes}, at);
          },
          &server};
      (void)server.serve(7, "echo", echo);
      Wire wire;
      std::uint64_t done = 0;
      bool stop = false;
      std::vector<LoopCall> calls(256);
      for (LoopCall& call : calls) {
        call.engine = &client;
        call.now = &now;
        call.done = &done;
        call.stop = &stop;
        call.method = 7;
        call.peer = client.connect(addresses[1]).value();
        call.bytes = size;
        call.complete = [](transfer::OutgoingCall& base, const transfer::Outcome& outcome) {
          if (outcome.failed) std::abort();
          auto& again = static_cast<LoopCall&>(base);
          ++*again.done;
          if (!*again.stop) submit_again(again);
        };
        submit_again(call);
      }
      const auto run = [&](std::uint64_t until) {
        for (int turn = 0; turn < 4'000'000 && done < until; ++turn) {
          now = now + std::chrono::microseconds(5);
          wire.carry(client, addresses[0], server, now, mtu);
          now = now + std::chrono::microseconds(5);
          wire.carry(server, addresses[1], client, now, mtu);
        }
      };
      // Windows, rings and slabs grow to what the path's rate asks for, which they measure over tens of milliseconds.
      const Instant warm = now + std::chrono::milliseconds(60);
      while (now < warm) run(done + 1'000);
      const std::uint64_t start = done;
      const std::uint64_t before = Heap::allocations;
      run(start + 100'000);
      EXPECT_EQ(Heap::allocations - before, 0u);
      ASSERT_GE(done, start + 100'000);
      stop = true;
      for (int turn = 0; turn < 1'000 && !client.is_quiet(); ++turn) run(done + 1);
      EXPECT_TRUE(client.is_quiet());
    }
  }
}

}  // namespace
}  // namespace weir::engine
