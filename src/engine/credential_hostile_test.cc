// Peers that prove who they are and then lie about where they are, and credentials that go at a bad moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "engine/core.h"
#include "engine/credential_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Agreed;
using testing::IdentityMode;
using testing::TestCall;
using namespace std::chrono_literals;

bool is_hello(MutableByteSpan bytes) { return bytes.size() == wire::kHelloBytes && bytes[0] == std::byte{2}; }

// ---- where a peer says that it is ----

TEST_F(IdentityMode, AForeignAddressGetsThreeHellosHoweverOftenItsClaimantShakesHands) {
  int hellos = 0;
  pair.on_wire = [&](int from, MutableByteSpan bytes) { hellos += from == 0 && is_hello(bytes) ? 1 : 0; };
  pair.loss = 1;  // whoever is there does not know us
  TestCall call;
  pair.call(call, "echo", "one", {}, 60s);
  for (std::uint8_t number = 5; number < 45; ++number) {
    Agreed agreed = agree(number);
    agreed.ours.data.port = static_cast<std::uint16_t>(1'000 + number);  // another port of the same victim each time
    hand_out(agreed);
    pair.run_for(500ms);
  }
  EXPECT_LE(hellos, 3) << "forty handshakes in twenty seconds";
  EXPECT_GE(hellos, 1);
}

TEST_F(IdentityMode, AnAddressThatAnsweredIsGreetedAfterEveryRestart) {
  pair.serve_echo();
  for (std::uint8_t number = 5; number < 15; ++number) {
    hand_out(agree(number));
    pair.run_for(1ms);
    call_and_expect_echo();
    restart_server(static_cast<std::uint8_t>(number + 100));
  }
}

struct TwoPeers : IdentityMode {
  // Somebody else whom the application calls says that he is where the honest peer is. He is asked first.
  TwoPeers() {
    liar = pair.client().connect(Address::v4(0x0a000009, 9)).value();
    Agreed lie = agree(99);
    pair.client().install(liar, lie.ours, pair.now);
    pair.serve("hold", [](Engine&, transfer::IncomingTransfer&, Instant) {});
    pair.serve_echo();
    pair.call(held, "hold", "x", {}, 60s);
    EXPECT_TRUE(is_wanted(false));
    hand_out(agree(5));
    EXPECT_TRUE(pair.run_until([&] { return pair.server().census().incoming == 1; }));
    pair.run_for(50ms);
    pair.client().install(liar, agree(98).ours, pair.now);
  }

  std::uint32_t liar = 0;
  TestCall held;
};

TEST_F(TwoPeers, AClaimDoesNotHideThatAnotherPeerLostItsPaths) {
  restart_server(3);
  Instant asked = Instant::never();
  pair.on_wire = [&](int from, MutableByteSpan) {
    if (from == 0 && asked.is_never()) asked = pair.now;
  };
  EXPECT_LE(when([&] { return is_wanted(true); }) - asked, 2 * pair.latency) << "one round trip tells";
}

TEST_F(TwoPeers, AClaimDoesNotHideThatAnotherPeersPortIsClosed) {
  std::vector<std::byte> last;
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    if (from == 0) last.assign(bytes.begin(), bytes.end());
  };
  TestCall call;
  pair.call(call, "echo", "two", {}, 60s);
  pair.turn(0);
  ASSERT_FALSE(last.empty());
  pair.client().on_unreachable(pair.addresses[1], ByteSpan(last).first(24), pair.now);
  EXPECT_TRUE(is_wanted(true));
}

TEST_F(IdentityMode, TwoNamesOfOneProcessBothLearnOfItsRestart) {
  pair.serve("hold", [](Engine&, transfer::IncomingTransfer&, Instant) {});
  const std::uint32_t alias = pair.client().connect(Address::v4(0x0a000009, 9)).value();
  TestCall first, second;
  for (TestCall* call : {&first, &second}) {
    const std::uint8_t number = call == &first ? 5 : 6;
    const std::uint32_t named = std::exchange(pair.peer, call == &first ? pair.peer : alias);
    pair.call(*call, "hold", "x", {}, 60s);
    hand_out(agree(number));
    pair.peer = named;
  }
  ASSERT_TRUE(pair.run_until([&] { return pair.server().census().incoming == 2; }));
  pair.run_for(50ms);
  Wanted wanted;
  while (pair.client().take_wanted(wanted)) {
  }
  restart_server(3);
  std::vector<std::uint32_t> told;
  EXPECT_TRUE(pair.run_until(
      [&] {
        while (pair.client().take_wanted(wanted)) told.push_back(wanted.peer);
        return told.size() == 2;
      },
      200));
  std::ranges::sort(told);
  EXPECT_EQ(told, (std::vector<std::uint32_t>{pair.peer, alias}));
}

// ---- credentials that go while a path is being confirmed ----

// The responder has answered the hello when it loses the credential.
struct Forgetting : IdentityMode {
  void call_and_forget(TestCall& call, Duration deadline = 60s) {
    pair.on_wire = [this](int from, MutableByteSpan bytes) {
      if (from == 1 && wire::decode_header(bytes.data()).type == wire::PacketType::hello_reply) {
        server_book.known.erase(first.ours.id);
        pair.on_wire = nullptr;
      }
    };
    pair.serve_echo();
    pair.call(call, "echo", "one", {}, deadline);
    EXPECT_TRUE(is_wanted(false));
    hand_out(first);
    EXPECT_TRUE(pair.run_until([&] { return state() == Path::State::confirming; }));
  }
  Path::State state() {
    Core& core = testing::EngineAccess::core(pair.client());
    Path* path = core.path_of(*core.peers.at(pair.peer));
    return path == nullptr ? Path::State::hello : path->state;
  }

  Agreed first = agree(5);
};

TEST_F(Forgetting, APathUnderAReplacedCredentialStartsOverAtOnce) {
  TestCall call;
  call_and_forget(call);
  pair.turn(0);        // the `first` packet with the call is out
  hand_out(agree(6));  // and only now a new credential is there
  const Instant start = pair.now;
  EXPECT_LE(when([&] { return call.completions != 0; }) - start, 8 * pair.latency);
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(call.reply, "one");
  EXPECT_EQ(pair.handled, 1);
  pair.run_for(1s);
  EXPECT_EQ(pair.client().census().paths, 1u) << "nothing is left of the first";
}

TEST_F(Forgetting, ASuccessorThatIsThereAlreadyTakesWhatTheFirstGaveBack) {
  TestCall call;
  call_and_forget(call);
  // The responder's word is late: the next path is open when it comes.
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    if (from == 1 && bytes[0] == wire::kUnknownSecretByte) bytes[20] ^= std::byte{1};
  };
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return state() == Path::State::open; }));
  EXPECT_EQ(call.completions, 0);
  pair.on_wire = nullptr;
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(pair.handled, 1);
}

TEST_F(Forgetting, WhatCannotHaveRunIsNotSaidToHaveRun) {
  TestCall call;
  call_and_forget(call, 10s);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));  // there is no other credential
  EXPECT_EQ(call.code, Code::timeout);
  EXPECT_FALSE(call.may_have_run);
  EXPECT_EQ(pair.handled, 0);
}

TEST_F(Forgetting, AnotherIncarnationCannotSayThatNothingHasRun) {
  // The call runs, but nothing of that comes back; then the responder restarts, with the same signer.
  pair.serve_echo();
  TestCall call;
  pair.call(call, "echo", "one", {}, 60s);
  EXPECT_TRUE(is_wanted(false));
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    if (from == 1 && wire::decode_header(bytes.data()).type == wire::PacketType::sealed) bytes.back() ^= std::byte{1};
  };
  hand_out(first);
  ASSERT_TRUE(pair.run_until([&] { return pair.handled == 1; }));
  EXPECT_EQ(state(), Path::State::confirming);
  pair.on_wire = nullptr;
  pair.wire.clear();
  restart_server(3);
  pair.server().on_timeout(pair.now);
  // Whatever sequence the new one has handed out: let it take the old packets for new ones.
  testing::EngineAccess::core(pair.server()).next_sequence = 100;
  ASSERT_TRUE(pair.run_until([&] { return is_wanted(true); })) << "it says that it does not know the credential";
  EXPECT_EQ(call.completions, 0);
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::reset);
  EXPECT_TRUE(call.may_have_run);
  EXPECT_EQ(pair.handled, 1) << "it ran twice";
}

// ---- what was agreed ----

TEST_F(IdentityMode, TheAgreedMtuBoundsWhatEitherSideTries) {
  pair.serve("large", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    engine.reply(request, {}, {request.delivery.request, request.bytes}, at);
  });
  const auto largest_with = [&](std::uint8_t number, std::uint32_t mtu) {
    std::size_t largest[2] = {};
    pair.on_wire = [&](int from, MutableByteSpan bytes) { largest[from] = std::max(largest[from], bytes.size()); };
    Agreed agreed = agree(number);
    agreed.ours.mtu = agreed.theirs.mtu = mtu;
    hand_out(agreed);
    for (int i = 0; i < 50; ++i) {
      TestCall call;
      pair.call(call, "large", std::string(12'000, 'x'));
      EXPECT_TRUE(pair.run_until([&] { return call.completions != 0; }));
      EXPECT_FALSE(call.failed) << call.reply;
    }
    pair.on_wire = nullptr;
    return std::pair{largest[0], largest[1]};
  };
  EXPECT_EQ(largest_with(5, 1'472), (std::pair<std::size_t, std::size_t>{1'472, 1'472}));
  const auto [calls, replies] = largest_with(6, 8'972);
  EXPECT_EQ(calls, 8'972u);
  EXPECT_EQ(replies, 8'972u);
}

// ---- secrets ----

template <class T>
bool leaves(const T& value, const crypto::KeyBytes& key) {
  alignas(T) std::array<std::byte, sizeof(T)> memory{};
  const auto holds = [&] { return std::ranges::search(memory, key).begin() != memory.end(); };
  T* const copy = new (memory.data()) T(value);
  EXPECT_TRUE(holds());
  std::destroy_at(copy);
  return holds();
}

TEST(Credentials, LeaveNoKeysBehind) {
  crypto::KeyBytes key;
  key.fill(std::byte{0x5a});
  Credential credential;
  credential.reset_key = key;
  EXPECT_FALSE(leaves(credential, key));
  credential.reset_key = {};
  credential.answer_key = key;
  EXPECT_FALSE(leaves(credential, key));
  credential.answer_key = {};
  credential.hello_key = key;
  EXPECT_FALSE(leaves(credential, key));
  KnownCredential known;
  known.hello_key = key;
  EXPECT_FALSE(leaves(known, key));
  known = {};
  known.answer_key = key;
  EXPECT_FALSE(leaves(known, key));
  EngineConfig config;
  config.signer = key;
  EXPECT_FALSE(leaves(config, key));
}

}  // namespace
}  // namespace weir::engine
