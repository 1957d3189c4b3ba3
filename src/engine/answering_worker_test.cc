// Lost-state answers speak for the worker that gives them. The workers of a process share its incarnation, its signer
// and its credentials; what became of a `first` packet is known to the worker that answered the hello, and to no other.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "engine/credential_testing.h"
#include "engine/engine_access.h"

namespace weir::engine {
namespace {

using namespace std::chrono_literals;
using testing::Agreed;
using testing::IdentityMode;
using testing::TestCall;

using Bytes = std::vector<std::byte>;

// A server process of two workers, each at a port of its own. The call is for the first worker, which runs the call
// and whose packets do not arrive: the caller's path stays unconfirmed. Somebody on the wire has a copy of the packet
// that carried the call.
class TwoWorkers : public IdentityMode {
 protected:
  void SetUp() override {
    EngineConfig config = pair.configs[1];
    config.worker = 1;
    config.port = 2223;
    other = std::make_unique<Engine>(config, pair.entropy, nullptr, 9, pair.now);
    // It has answered other hellos: the sequence of the recorded packet is one of its own.
    testing::EngineAccess::core(*other).next_sequence = 100;
    pair.serve_echo();
    pair.call(call, "echo", "one", {}, 60s);
    ASSERT_TRUE(is_wanted(false));
    pair.on_wire = [this](int from, MutableByteSpan bytes) {
      const wire::PacketType type = wire::decode_header(bytes.data()).type;
      if (from == 0 && type == wire::PacketType::first && !recorded) recorded.emplace(bytes.begin(), bytes.end());
      if (from == 1 && type == wire::PacketType::sealed) bytes.back() ^= std::byte{1};
    };
    hand_out(first);
    ASSERT_TRUE(pair.run_until([&] { return pair.handled == 1; }));
    ASSERT_TRUE(recorded.has_value());
    ASSERT_EQ(path()->state, Path::State::confirming);
    server_book.known.erase(first.ours.id);
  }
  Path* path() {
    Core& core = testing::EngineAccess::core(pair.client());
    return core.path_of(*core.peers.at(pair.peer));
  }
  // What the second worker says about the recorded packet.
  std::optional<Bytes> word_of_other() { return word_of(*other, *recorded); }
  std::optional<Bytes> word_of(Engine& worker, Bytes packet) {
    worker.on_datagram(packet, pair.addresses[0], 0, nullptr, pair.now);
    std::vector<Train> trains;
    worker.collect(trains, pair.now);
    for (const Train& train : trains) {
      if (!train.bytes.empty() && train.bytes[0] == wire::kUnknownSecretByte) {
        return Bytes(train.bytes.begin(), train.bytes.end());
      }
    }
    return std::nullopt;
  }
  void hear(Bytes bytes, const Address& from) { pair.client().on_datagram(bytes, from, 0, nullptr, pair.now); }

  Agreed first = agree(5);
  TestCall call;
  std::unique_ptr<Engine> other;
  std::optional<Bytes> recorded;
};

TEST_F(TwoWorkers, OneCannotSayWhatBecameOfAPacketForTheOther) {
  const std::optional<Bytes> word = word_of_other();
  ASSERT_TRUE(word.has_value());
  hear(*word, pair.addresses[1]);  // in the name of the first worker
  pair.on_wire = nullptr;
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  pair.run_for(1s);
  EXPECT_EQ(pair.handled, 1) << "it ran twice";
}

// The worker that has run the call is shown the packet again, under a sequence that it has given to another hello and
// that became no path. What it says of that packet it does not say of the first one.
TEST_F(TwoWorkers, TheSameWorkerSpeaksOfTheSequenceThatItWasShown) {
  Core& core = testing::EngineAccess::core(pair.server());
  Bytes copy = *recorded;
  const std::uint64_t unused = core.next_sequence++;
  core.exchanges[unused % Core::kExchangeWindow].path = kNoPath;
  ASSERT_NE(wire::decode_first(copy)->prefix.sequence, unused);
  store<std::uint64_t>(copy.data() + wire::kHeaderBytes, unused);
  const std::optional<Bytes> word = word_of(pair.server(), copy);
  ASSERT_TRUE(word.has_value());
  hear(*word, pair.addresses[1]);
  pair.on_wire = nullptr;
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  pair.run_for(1s);
  EXPECT_EQ(pair.handled, 1) << "it ran twice";
}

// The word is reason to shake hands again all the same: the credential is gone, whoever says so.
TEST_F(TwoWorkers, OneIsBelievedThatTheCredentialIsGone) {
  const std::optional<Bytes> word = word_of_other();
  ASSERT_TRUE(word.has_value());
  hear(*word, pair.addresses[1]);
  EXPECT_TRUE(is_wanted(true));
  ASSERT_NE(path(), nullptr);
  EXPECT_EQ(path()->state, Path::State::confirming);
  EXPECT_EQ(call.completions, 0);
}

// Who answers is under the tag: the second worker's word cannot be changed into one of the first.
TEST_F(TwoWorkers, ThatWordCannotBeMadeTheOthers) {
  const std::optional<Bytes> word = word_of_other();
  ASSERT_TRUE(word.has_value());
  ASSERT_EQ(word->size(), wire::kUnknownSecretBytes);
  for (std::size_t at = 0; at + wire::kTagBytes < word->size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes changed = *word;
      if (changed[at] == static_cast<std::byte>(value)) continue;
      changed[at] = static_cast<std::byte>(value);
      hear(changed, pair.addresses[1]);
    }
  }
  EXPECT_FALSE(is_wanted(true));
  ASSERT_NE(path(), nullptr);
  EXPECT_EQ(path()->state, Path::State::confirming);
}

}  // namespace
}  // namespace weir::engine
