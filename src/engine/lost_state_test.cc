// What somebody says who has lost his state (docs/protocol.md, rules R-*), said truly, falsely and too late.
#include <gtest/gtest.h>

#include "engine/core.h"
#include "engine/credential_testing.h"
#include "engine/engine_access.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::IdentityMode;
using testing::TestCall;
using namespace std::chrono_literals;

// Everything that the client has asked for since the last time.
std::vector<Wanted> all_wanted(Engine& client) {
  std::vector<Wanted> all;
  for (Wanted wanted; client.take_wanted(wanted);) all.push_back(wanted);
  return all;
}

// ---- an unknown credential ----

// The responder's word never arrives by itself: the test takes it from the wire.
struct UnknownCredential : IdentityMode {
  UnknownCredential() {
    pair.on_wire = [this](int from, MutableByteSpan bytes) {
      if (from != 1 || bytes[0] != wire::kUnknownSecretByte) return;
      word.assign(bytes.begin(), bytes.end());
      bytes[bytes.size() - 1] ^= std::byte{1};
    };
    pair.call(call, "echo", "one", {}, 60s);
    EXPECT_TRUE(is_wanted(false));
  }
  void hear(std::vector<std::byte> bytes) { pair.client().on_datagram(bytes, pair.addresses[1], 0, nullptr, pair.now); }
  // No change of a single bit is believed, and the word itself is.
  void expect_only_the_true_word_counts() {
    ASSERT_EQ(word.size(), wire::kUnknownSecretBytes);
    (void)all_wanted(pair.client());
    for (std::size_t bit = 0; bit < word.size() * 8; ++bit) {
      std::vector<std::byte> changed = word;
      changed[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      hear(changed);
      ASSERT_TRUE(all_wanted(pair.client()).empty()) << "bit " << bit;
    }
    std::vector<std::byte> cut = word;
    cut.pop_back();
    hear(cut);
    EXPECT_TRUE(all_wanted(pair.client()).empty());
    std::vector<std::byte> from_elsewhere = word;
    pair.client().on_datagram(from_elsewhere, Address::v4(0x0a000009, 2222), 0, nullptr, pair.now);
    EXPECT_TRUE(all_wanted(pair.client()).empty());
    EXPECT_EQ(call.completions, 0);
    hear(word);
    const std::vector<Wanted> wanted = all_wanted(pair.client());
    ASSERT_EQ(wanted.size(), 1u);
    EXPECT_TRUE(wanted[0].suspects);
    EXPECT_EQ(wanted[0].hurry, Hurry::heard_from);
  }

  TestCall call;
  std::vector<std::byte> word;
};

TEST_F(UnknownCredential, OfAHelloIsBelievedToTheBit) {
  hand_out(agree(5), false);
  pair.run_for(1ms);
  expect_only_the_true_word_counts();
}

TEST_F(UnknownCredential, OfAFirstPacketIsBelievedToTheBit) {
  // The responder forgets the credential between its reply and the packet that follows it.
  hand_out(agree(5));
  pair.turn(0);
  pair.now = pair.now + pair.latency;
  pair.turn(1);
  server_book.known.clear();
  pair.run_for(1ms);
  expect_only_the_true_word_counts();
  EXPECT_EQ(pair.client().census().paths, 0u) << "said by the process that would have made it, so it is over";
}

// Nobody may have said hello for long: what is answered is counted all the same.
TEST_F(UnknownCredential, OfFirstPacketsIsSaidUpToALimitPerTimeAndNotOnlyOnce) {
  std::vector<std::byte> first;
  std::size_t answers = 0;
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    if (from == 0 && wire::decode_header(bytes.data()).type == wire::PacketType::first && first.empty()) {
      first.assign(bytes.begin(), bytes.end());
    }
    answers += from == 1 && bytes[0] == wire::kUnknownSecretByte;
  };
  hand_out(agree(5));
  pair.turn(0);
  pair.now = pair.now + pair.latency;
  pair.turn(1);
  server_book.known.clear();
  pair.now = pair.now + pair.latency;
  pair.turn(0);
  ASSERT_FALSE(first.empty());
  pair.wire.clear();
  for (std::size_t millisecond = 1; millisecond <= 10; ++millisecond) {
    pair.now = pair.now + 1ms;
    for (std::size_t i = 0; i < 2 * HelloGate::kStrangers; ++i) {
      std::vector<std::byte> copy = first;
      pair.server().on_datagram(copy, pair.addresses[0], 0, nullptr, pair.now);
    }
    pair.turn(1);
    EXPECT_EQ(answers, millisecond * HelloGate::kStrangers);
  }
}

TEST_F(UnknownCredential, SaidOfAnEarlierHelloMeansNothingToALaterOne) {
  hand_out(agree(5), false);
  pair.run_for(1ms);
  ASSERT_FALSE(word.empty());
  const std::vector<std::byte> stale = word;
  pair.on_wire = nullptr;
  pair.client().cancel(call, pair.now);
  hand_out(agree(6));
  (void)all_wanted(pair.client());
  TestCall next;
  pair.call(next, "echo", "two");
  hear(stale);
  EXPECT_TRUE(all_wanted(pair.client()).empty());
}

// ---- an unknown path ----

// A server that keeps one call for ever, so that a second one waits for its slot.
struct Restarting : IdentityMode {
  Restarting() {
    pair.configs[1].limits.calls_per_peer = 2;
    restart_server(2);
    pair.serve("hold", [](Engine&, transfer::IncomingTransfer&, Instant) {});
    pair.call(sent, "hold", "sent", {}, 60s);
    EXPECT_TRUE(is_wanted(false));
    hand_out(agree(5));
    EXPECT_TRUE(pair.run_until([&] { return pair.server().census().incoming == 1; }));
    pair.run_for(50ms);
    pair.call(unsent, "echo", "unsent", {}, 60s);
    pair.run_for(10ms);
    EXPECT_EQ(pair.client().census().calls_queued, 1u);
  }

  TestCall sent, unsent;
};

TEST_F(Restarting, APeersRestartResetsWhatWasSentAndNothingElse) {
  restart_server(3);
  Instant asked = Instant::never();
  pair.on_wire = [&](int from, MutableByteSpan) {
    if (from == 0 && asked.is_never()) asked = pair.now;
  };
  EXPECT_LE(when([&] { return is_wanted(true); }) - asked, 2 * pair.latency) << "one round trip tells";
  EXPECT_EQ(sent.completions, 0) << "nothing is torn down before a handshake has shown a new incarnation";
  const Instant handed_out = pair.now;
  hand_out(agree(6));
  EXPECT_LE(when([&] { return sent.completions != 0; }) - handed_out, 2 * pair.latency)
      << "one more round trip recovers";
  EXPECT_EQ(sent.code, Code::reset);
  EXPECT_TRUE(sent.may_have_run);
  ASSERT_TRUE(pair.run_until([&] { return unsent.completions != 0; }));
  EXPECT_EQ(unsent.reply, "unsent");
  EXPECT_EQ(pair.handled, 1);
}

TEST_F(Restarting, WhatThePeerSaidBeforeChangesNothingAfterwards) {
  std::vector<std::byte> word;
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    if (from == 1 && bytes[0] == wire::kUnknownPathByte && word.empty()) word.assign(bytes.begin(), bytes.end());
  };
  restart_server(3);
  ASSERT_TRUE(pair.run_until([&] { return is_wanted(true); }));
  ASSERT_EQ(word.size(), wire::kUnknownPathBytes);
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return unsent.completions != 0; }));
  // Said again, it is about a packet that is no longer in flight, on a path that is gone.
  pair.client().on_datagram(word, pair.addresses[1], 0, nullptr, pair.now);
  EXPECT_FALSE(is_wanted(true));
  call_and_expect_echo();
}

// The peer has lost its path, but is the process it was: what it was told before may be running there. So its word,
// though true, resets nothing; what was sent ends by silence.
TEST_F(Restarting, AProcessThatStillLivesResetsNothing) {
  Core& inside = EngineAccess::core(pair.server());
  std::vector<Path*> paths;
  inside.paths.for_each([&](Path& path) { paths.push_back(&path); });
  ASSERT_EQ(paths.size(), 1u);
  const std::uint32_t lost = paths[0]->id;
  inside.end_path(*paths[0], Code::reset, "lost", false, pair.now);
  ASSERT_EQ(inside.farewells, nullptr) << "nothing was said about it";
  std::size_t said = 0;
  pair.on_wire = [&](int from, MutableByteSpan bytes) { said += from == 1 && bytes[0] == wire::kUnknownPathByte; };
  ASSERT_TRUE(pair.run_until([&] { return is_wanted(true); }));
  EXPECT_GT(said, 0u);
  hand_out(agree(6));
  const std::uint32_t old = EngineAccess::core(pair.client()).peers.at(pair.peer)->path;
  ASSERT_TRUE(pair.run_until([&] { return EngineAccess::core(pair.client()).peers.at(pair.peer)->path != old; }));
  const Path& fresh =
      *EngineAccess::core(pair.client()).find_path(EngineAccess::core(pair.client()).peers.at(pair.peer)->path);
  ASSERT_TRUE(pair.run_until([&] { return unsent.completions != 0; })) << "the new path carries what was not sent";
  EXPECT_EQ(unsent.reply, "unsent");
  EXPECT_NE(fresh.remote_id, lost);
  EXPECT_EQ(sent.completions, 0) << "the new path is open, and the word that the old one is lost has reset it";
  ASSERT_TRUE(pair.run_until([&] { return sent.completions != 0; }));
  EXPECT_EQ(sent.code, Code::peer_failed) << sent.reply;
  EXPECT_TRUE(sent.may_have_run);
  call_and_expect_echo();
}

TEST_F(Restarting, AForgedWordThatAPathIsUnknownIsIgnored) {
  // Whoever answers there now does not have the signer of the one before.
  std::size_t said = 0;
  pair.on_wire = [&](int from, MutableByteSpan bytes) { said += from == 1 && bytes[0] == wire::kUnknownPathByte; };
  pair.configs[1].signer.fill(std::byte{9});
  restart_server(3);
  pair.run_for(1500ms);
  EXPECT_GT(said, 0u);
  // Only the unanswered probes and hellos make it doubtful, and nothing has been torn down.
  EXPECT_EQ(sent.completions, 0);
  for (const Wanted& wanted : all_wanted(pair.client())) {
    EXPECT_TRUE(wanted.suspects);
    EXPECT_EQ(wanted.hurry, Hurry::none) << "nobody has proven to be there";
  }
}

TEST_F(Restarting, TheWordThatAPathIsUnknownIsBelievedToTheBit) {
  std::vector<std::byte> word;
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    if (from != 1 || bytes[0] != wire::kUnknownPathByte) return;
    if (word.empty()) word.assign(bytes.begin(), bytes.end());
    bytes[bytes.size() - 1] ^= std::byte{1};  // the original never arrives
  };
  restart_server(3);
  ASSERT_TRUE(pair.run_until([&] { return !word.empty(); }));
  const auto hear = [&](std::vector<std::byte> bytes, const Address& from) {
    pair.client().on_datagram(bytes, from, 0, nullptr, pair.now);
    return all_wanted(pair.client());
  };
  ASSERT_TRUE(all_wanted(pair.client()).empty());
  for (std::size_t bit = 0; bit < word.size() * 8; ++bit) {
    std::vector<std::byte> changed = word;
    changed[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    ASSERT_TRUE(hear(changed, pair.addresses[1]).empty()) << "bit " << bit;
  }
  EXPECT_TRUE(hear(word, Address::v4(0x0a000009, 2222)).empty());
  EXPECT_EQ(sent.completions, 0);
  const std::vector<Wanted> wanted = hear(word, pair.addresses[1]);
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_EQ(wanted[0].hurry, Hurry::heard_from);
  EXPECT_EQ(sent.completions, 0);
}

}  // namespace
}  // namespace weir::engine
