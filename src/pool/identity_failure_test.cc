// Every way in which a handshake over real sockets can fail is a code and a sentence at the caller, an event on both
// sides where the peer is known, and no concern of anybody else.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "crypto/entropy.h"
#include "handshake/endpoint.h"
#include "pool/identity_testing.h"
#include "worker/clock.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::code_of;
using testing::DatagramSocket;
using testing::identity_client;
using testing::identity_server;
using testing::kDaySeconds;
using testing::kSecret;
using testing::Listener;
using testing::open;
using testing::sentence_of;
using testing::Span;
using testing::TestAuthority;
using testing::text_of;

// A server that counts what it runs, and an honest client that must always get through.
class HandshakeFailure : public ::testing::Test {
 protected:
  void serve(Identity identity) {
    Config config = identity_server(std::move(identity));
    config.subscriber = at_server;
    server.emplace(open(config));
    ASSERT_TRUE(server->serve_inline("run", [this](InlineRequest& request) {
      ++runs;
      request.reply("ran");
    }));
  }
  Result<Reply> call(Identity identity, std::string_view name = "") {
    Config config = identity_client(std::move(identity));
    config.subscriber = at_client;
    Pool client = open(config);
    return client.peer(server->listen_address(), {.name = name}).unary("run", "").get();
  }
  void expect_failed(const Result<Reply>& result, Code code, std::string_view says) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), code) << result.error().to_string();
    EXPECT_NE(result.error().message().find(says), std::string_view::npos) << result.error().to_string();
    EXPECT_FALSE(result.error().may_have_run());
    EXPECT_EQ(runs, 0);
    ASSERT_FALSE(at_client->failures().empty());
    EXPECT_EQ(at_client->failures()[0].code, code);
    // What only the call knows stands in front; a refusal is in the peer's words alone.
    const std::string named = "\"run\" at " + server->listen_address() + ": ";
    EXPECT_EQ((code == Code::refused ? "" : named) + at_client->failures()[0].sentence, result.error().message());
    EXPECT_EQ(at_client->failures()[0].peer, server->listen_address());
  }
  void expect_event_at_server(Code code) {
    await([this] { return !at_server->failures().empty(); });
    EXPECT_EQ(at_server->failures()[0].code, code) << at_server->failures()[0].sentence;
    EXPECT_NE(at_server->failures()[0].peer.find("127.0.0.1:"), std::string::npos) << at_server->failures()[0].peer;
  }
  void expect_served(Identity honest) { EXPECT_EQ(text_of(call(std::move(honest))), "ran"); }

  TestAuthority authority;
  std::shared_ptr<Listener> at_server = std::make_shared<Listener>(), at_client = std::make_shared<Listener>();
  std::atomic<int> runs{0};
  std::optional<Pool> server;
};

TEST_F(HandshakeFailure, TheServersCertificateLeadsToAnotherRoot) {
  serve(authority.identity({"127.0.0.1"}));
  TestAuthority other("another authority");
  expect_failed(call(authority.identity_that_trusts({"client.test"}, other)), Code::unauthenticated, "root");
  expect_event_at_server(Code::unauthenticated);
  expect_served(authority.identity({"client.test"}));
}

TEST_F(HandshakeFailure, TheCallersCertificateLeadsToAnotherRoot) {
  serve(authority.identity({"127.0.0.1"}));
  TestAuthority other("another authority");
  expect_failed(call(other.identity_that_trusts({"client.test"}, authority)), Code::unauthenticated,
                "did not accept our certificate");
  expect_event_at_server(Code::unauthenticated);
  expect_served(authority.identity({"client.test"}));
}

TEST_F(HandshakeFailure, TheServersCertificateExpired) {
  constexpr std::int64_t kLastsSeconds = 1;
  serve(authority.identity({"127.0.0.1"}, Span{-kDaySeconds, kLastsSeconds}));
  const std::int64_t opened = handshake::wall_clock_seconds();
  await([&] { return handshake::wall_clock_seconds() > opened + kLastsSeconds; });
  expect_failed(call(authority.identity({"client.test"})), Code::unauthenticated, "expired");
  expect_event_at_server(Code::unauthenticated);
}

TEST_F(HandshakeFailure, TheCallersCertificateExpired) {
  constexpr std::int64_t kLastsSeconds = 1;
  serve(authority.identity({"127.0.0.1"}));
  Config config = identity_client(authority.identity({"client.test"}, Span{-kDaySeconds, kLastsSeconds}));
  config.subscriber = at_client;
  Pool client = open(config);
  const std::int64_t opened = handshake::wall_clock_seconds();
  await([&] { return handshake::wall_clock_seconds() > opened + kLastsSeconds; });
  expect_failed(client.peer(server->listen_address()).unary("run", "").get(), Code::unauthenticated, "expired");
  expect_event_at_server(Code::unauthenticated);
  expect_served(authority.identity({"client.test"}));
}

TEST_F(HandshakeFailure, TheCertificateOfAnIntermediateAuthorityIsNotValidYet) {
  const handshake::Authority intermediate = authority.intermediate({kDaySeconds, 2 * kDaySeconds});
  const handshake::Issued issued = handshake::testing::value_of(
      intermediate.issue({.names = {"127.0.0.1"}, .validity = Span{}.validity(), .cut_validity = false}));
  serve(Identity::from_pem(issued.chain_pem, issued.key_pem, authority.roots()));
  expect_failed(call(authority.identity({"client.test"})), Code::unauthenticated, "not valid before");
  expect_event_at_server(Code::unauthenticated);
}

TEST_F(HandshakeFailure, OurOwnCertificateIsOfAnotherTime) {
  struct Case {
    Span span;
    const char* says;
  };
  for (const Case& each : {Case{{-2 * kDaySeconds, -60}, "expired"}, Case{{60, kDaySeconds}, "not valid before"}}) {
    const Result<Pool> pool = Pool::open(identity_server(authority.identity({"127.0.0.1"}, each.span)));
    ASSERT_FALSE(pool);
    EXPECT_EQ(pool.error().code(), Code::invalid_argument);
    EXPECT_NE(pool.error().message().find(each.says), std::string_view::npos) << pool.error().message();
  }
}

TEST_F(HandshakeFailure, TheServerHasAnotherName) {
  serve(authority.identity({"127.0.0.1", "a.test"}));
  expect_failed(call(authority.identity({"client.test"}), "b.test"), Code::unauthenticated, "b.test");
  expect_event_at_server(Code::unauthenticated);
  expect_served(authority.identity({"client.test"}));
}

TEST_F(HandshakeFailure, TheServerDoesNotProveItsAddress) {
  serve(authority.identity({"a.test", "127.0.0.2"}));
  expect_failed(call(authority.identity({"client.test"})), Code::unauthenticated, "127.0.0.1");
  expect_event_at_server(Code::unauthenticated);
}

TEST_F(HandshakeFailure, TheCallersNameWasRevoked) {
  serve(authority.identity({"127.0.0.1"}).deny({"revoked.test"}));
  expect_failed(call(authority.identity({"revoked.test"})), Code::refused, "revoked.test");
  expect_event_at_server(Code::refused);
  expect_served(authority.identity({"client.test"}));
}

TEST_F(HandshakeFailure, EveryCallThatWaitsIsToldTheReason) {
  serve(authority.identity({"127.0.0.1"}).deny({"revoked.test"}));
  Pool client = open(identity_client(authority.identity({"revoked.test"}), 2));
  std::vector<Call> calls;
  for (int i = 0; i < 200; ++i) calls.push_back(client.peer(server->listen_address()).unary("run", ""));
  for (Call& call : calls) {
    const Result<Reply> result = call.get();
    EXPECT_EQ(code_of(result), Code::refused);
    EXPECT_NE(sentence_of(result).find("revoked.test"), std::string::npos) << sentence_of(result);
  }
  EXPECT_EQ(runs, 0);
}

// ---- nobody, or somebody of another kind, at the address ----

TEST_F(HandshakeFailure, NobodyListens) {
  serve(authority.identity({"127.0.0.1"}));
  const std::string address = server->listen_address();
  server.reset();
  Pool client = open(identity_client(authority.identity({"client.test"})));
  for (int i = 0; i < 3; ++i) {  // by ICMP: the timeouts of handshakes would be longer than this test may take
    const Result<Reply> result = client.peer(address).unary("run", "").get();
    EXPECT_EQ(code_of(result), Code::peer_failed);
    EXPECT_EQ(sentence_of(result), "\"run\" at " + address + ": nobody listens at the peer's address");
    EXPECT_FALSE(!result && result.error().may_have_run());
  }
}

TEST_F(HandshakeFailure, AServerThatIsNotThereYetIsFoundWhenItIs) {
  serve(authority.identity({"127.0.0.1"}));
  Config config = identity_server(authority.identity({"127.0.0.1"}));
  config.listen = server->listen_address();
  server.reset();
  Pool client = open(identity_client(authority.identity({"client.test"})));
  Peer peer = client.peer(config.listen);
  EXPECT_EQ(code_of(peer.unary("echo", "x").get()), Code::peer_failed);
  Pool late = open(config);
  testing::serve_echo(late);
  EXPECT_EQ(text_of(peer.unary("echo", "x").get()), "x");
}

TEST_F(HandshakeFailure, OneSideHasASecretInstead) {
  serve(authority.identity({"127.0.0.1"}));
  Pool with_secret = open({.listen = "127.0.0.1:0", .secret = kSecret, .timeouts = {.connect = 300ms}});
  Pool with_identity = open({.identity = authority.identity({"client.test"}), .timeouts = {.handshake = 300ms}});
  const Result<Reply> to_identity = with_secret.peer(server->listen_address()).unary("run", "").get();
  EXPECT_EQ(code_of(to_identity), Code::peer_failed) << text_of(to_identity);
  EXPECT_EQ(sentence_of(to_identity),
            "\"run\" at " + server->listen_address() +
                ": the peer did not answer: nobody is there, or it has an identity instead of a secret");
  const Result<Reply> to_secret = with_identity.peer(with_secret.listen_address()).unary("run", "").get();
  EXPECT_EQ(code_of(to_secret), Code::peer_failed) << text_of(to_secret);
  EXPECT_EQ(sentence_of(to_secret),
            "\"run\" at " + with_secret.listen_address() +
                ": the peer did not answer: nobody is there, or it has a secret instead of an identity");
  EXPECT_EQ(runs, 0);
  expect_served(authority.identity({"client.test"}));
}

TEST_F(HandshakeFailure, TheAddressLeadsBackToThisPool) {
  serve(authority.identity({"127.0.0.1"}));
  const Result<Reply> result = server->peer(server->listen_address()).unary("run", "").get();
  EXPECT_EQ(code_of(result), Code::invalid_argument) << text_of(result);
  EXPECT_NE(sentence_of(result).find("this very pool"), std::string::npos) << sentence_of(result);
  EXPECT_EQ(runs, 0);
  expect_served(authority.identity({"client.test"}));
}

TEST_F(HandshakeFailure, ACallThatGaveUpEarlierSaysThatItsDeadlinePassed) {
  Pool with_secret = open({.listen = "127.0.0.1:0", .secret = kSecret});
  Pool client = open(identity_client(authority.identity({"client.test"})));
  const Result<Reply> result = client.peer(with_secret.listen_address()).unary("run", "", {.deadline = 50ms}).get();
  EXPECT_EQ(code_of(result), Code::timeout) << text_of(result);
  EXPECT_FALSE(!result && result.error().may_have_run());
}

// ---- the end of a pool in the middle of a handshake ----

class HandshakeCutShort : public ::testing::TestWithParam<int> {};

TEST_P(HandshakeCutShort, FailsItsCallsAndNothingElse) {
  TestAuthority authority;
  DatagramSocket mute;
  Workers crew = *Workers::open({.threads = GetParam()});
  Pool server = open({.listen = "127.0.0.1:0", .identity = authority.identity({"127.0.0.1"}), .on = &crew});
  testing::serve_echo(server);
  for (int round = 0; round < 10; ++round) {
    Pool client = open({.identity = authority.identity({"client.test"}), .on = &crew});
    std::vector<Call> calls;
    calls.push_back(client.peer(mute.local().to_string()).unary("echo", "x"));
    if (round % 2 == 0) {
      EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x").get()), "x");
    } else {
      calls.push_back(client.peer(server.listen_address()).unary("echo", "x"));  // may be anywhere
    }
    static_cast<void>(client.close(round % 3 == 0 ? 0ms : 2ms));
    for (Call& call : calls) {
      const Result<Reply> result = call.get();
      EXPECT_TRUE(result || result.error().code() == Code::closed) << text_of(result);
    }
  }
  Pool client = open({.identity = authority.identity({"client.test"}), .on = &crew});
  EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x").get()), "x");
}

INSTANTIATE_TEST_SUITE_P(Workers, HandshakeCutShort, ::testing::Values(0, 1, 2));

// ---- configurations ----

TEST(IdentityConfig, IsValidatedWithSentences) {
  TestAuthority authority;
  const handshake::Issued issued = authority.issue({"127.0.0.1"});
  const handshake::Issued another = authority.issue({"127.0.0.1"});
  struct Case {
    const char* says;
    Config config;
  };
  const Identity good = authority.identity({"127.0.0.1"});
  const Case cases[] = {
      {"either an identity or a secret", {.identity = good, .secret = kSecret}},
      {"give an identity", {}},
      {"certificate names", {.identity = good, .name = "me"}},
      {"timeouts.handshake", {.identity = good, .timeouts = {.handshake = 0ns}}},
      {"timeouts.credential", {.identity = good, .timeouts = {.credential = 0ns}}},
      {"timeouts.credential", {.identity = good, .timeouts = {.credential = 1ms}}},
      {"limits.credentials", {.identity = good, .limits = {.credentials = 0}}},
      {"limits.handshakes_in", {.identity = good, .limits = {.handshakes_in = 0}}},
      {"limits.handshakes_out", {.identity = good, .limits = {.handshakes_out = 0}}},
      {"allow", {.identity = good.allow({"not a name!"})}},
      {"deny", {.identity = good.deny({"*"})}},
      {"key", {.identity = Identity::from_pem(issued.chain_pem, another.key_pem, authority.roots())}},
      {"", {.identity = Identity::from_pem("nonsense", issued.key_pem, authority.roots())}},
      {"", {.identity = Identity::from_pem(issued.chain_pem, issued.key_pem, "")}},
  };
  for (const Case& each : cases) {
    const Result<Pool> pool = Pool::open(each.config);
    ASSERT_FALSE(pool) << each.says;
    EXPECT_EQ(pool.error().code(), Code::invalid_argument) << pool.error().to_string();
    EXPECT_NE(pool.error().message().find(each.says), std::string_view::npos) << pool.error().message();
    EXPECT_FALSE(pool.error().message().empty());
  }
  const Result<Pool> missing = Pool::open({.identity = Identity::from_files("/none.crt", "/none.key", "/none.ca")});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::system);
  EXPECT_NE(missing.error().message().find("/none.crt"), std::string_view::npos) << missing.error().message();
}

// Each peer that we shake hands with may have a handshake that fell silent, and another one beside it.
TEST(IdentityConfig, LimitsCountTwoHandshakesForEachPeerThatWeCall) {
  constexpr std::size_t kNames = std::size_t{16} << 20, kCredential = 672, kHandshake = 114'688;
  TestAuthority authority;
  Config config = identity_server(authority.identity({"127.0.0.1"}));
  config.limits.credentials = config.limits.handshakes_in = 1;
  config.limits.handshakes_out = 2;
  const std::string line = "credentials and handshakes: " + std::to_string(kNames + kCredential + 5 * kHandshake) + " ";
  const std::string limits = open(config).limits();
  EXPECT_NE(limits.find(line), std::string::npos) << limits;
}

TEST(IdentityConfig, TheSmallestLimitsStillServe) {
  TestAuthority authority;
  Config config = identity_server(authority.identity({"127.0.0.1"}));
  config.limits.credentials = 1;
  config.limits.handshakes_in = 1;
  config.limits.handshakes_out = 1;
  Pool server = open(config);
  testing::serve_echo(server);
  config.listen.clear();
  for (int i = 0; i < 5; ++i) {
    Pool client = open(config);
    EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x").get()), "x");
  }
}

// ---- a flood ----

// The first datagram of a handshake, as often as wanted from wherever wanted: each source is another handshake.
std::vector<std::byte> first_datagram(handshake::Endpoint& endpoint, const Address& target) {
  EXPECT_TRUE(endpoint.connect(0, target, "", worker::read_clock()));
  Address to;
  ByteSpan bytes;
  EXPECT_TRUE(endpoint.take_datagram(to, bytes, worker::read_clock()));
  return {bytes.begin(), bytes.end()};
}

class HandshakeFlood : public ::testing::Test {
 protected:
  static constexpr std::size_t kMaxIncoming = 150;
  static constexpr std::size_t kMaxGrowthBytes = std::size_t{64} << 20;  // 10,000 handshakes take ten times that

  HandshakeFlood() {
    Config config = identity_server(authority.identity({"127.0.0.1"}));
    config.limits.handshakes_in = kMaxIncoming;
    config.subscriber = at_server;
    server.emplace(open(config));
    testing::serve_echo(*server);
    target = *Address::parse(server->listen_address());
    const handshake::Issued issued = authority.issue({"half.test"});
    endpoint.emplace(
        handshake::Endpoint::Options{.credentials = handshake::testing::value_of(handshake::Credentials::from_pem(
                                         issued.chain_pem, issued.key_pem, authority.roots())),
                                     .wall_clock = handshake::wall_clock_seconds,
                                     .max_outgoing = 4 * kMaxIncoming,
                                     .entropy = &entropy});
  }
  void expect_honest_ones_served() {
    Pool newcomer = open(identity_client(authority.identity({"new.test"})));
    EXPECT_EQ(text_of(newcomer.peer(server->listen_address()).unary("echo", "x").get()), "x");
    EXPECT_EQ(text_of(known.peer(server->listen_address()).unary("echo", "x").get()), "x");
    heap_most = std::max<std::size_t>(heap_most, mallinfo2().uordblks);
  }

  TestAuthority authority;
  std::shared_ptr<Listener> at_server = std::make_shared<Listener>();
  crypto::SystemEntropy entropy;
  std::optional<Pool> server;
  Pool known = open(identity_client(authority.identity({"known.test"})));
  Address target;
  std::optional<handshake::Endpoint> endpoint;
  std::size_t heap_most = 0;
};

TEST_F(HandshakeFlood, TenThousandFirstDatagramsStopNobodyAndCostLittle) {
  const std::vector<std::byte> first = first_datagram(*endpoint, target);
  expect_honest_ones_served();
  const std::size_t heap_before = mallinfo2().uordblks;
  for (int i = 0; i < 10'000; ++i) {
    DatagramSocket().send(first, target);  // and it is gone: what is sent to it comes back as ICMP
    if (i % 2'000 == 1'999) expect_honest_ones_served();
  }
  if (heap_before > 0) {  // not under a sanitizer
    EXPECT_LT(heap_most, heap_before + kMaxGrowthBytes);
  }
  // Not one event for each, but one now and then for all of them.
  await([this] {
    return std::ranges::any_of(at_server->degraded("handshakes"), [](const std::string& sentence) {
      return sentence.find(": 0 asked to prove") == std::string::npos;
    });
  });
  EXPECT_LT(at_server->degraded("handshakes").size(), 1'000u);
  EXPECT_TRUE(at_server->failures().empty());
}

// These prove their address as they are asked to, and then say nothing more.
TEST_F(HandshakeFlood, AsManyProvenHalfHandshakesAsThereIsRoomForStopNobody) {
  expect_honest_ones_served();
  const std::size_t heap_before = mallinfo2().uordblks;
  DatagramSocket socket;
  const auto say = [&] {
    Address to;
    ByteSpan bytes;
    while (endpoint->take_datagram(to, bytes, worker::read_clock())) socket.send(bytes, to);
  };
  constexpr std::uint8_t kTypeMask = 0xf0, kRetry = 0xf0;
  std::size_t proven = 0;
  for (std::uint64_t i = 0; i < 4 * kMaxIncoming; ++i) {
    ASSERT_TRUE(endpoint->connect(i + 1, target, "", worker::read_clock()));
    say();
    std::vector<std::byte> answer;
    Address from;
    socket.wait(1ms);
    while (socket.receive(answer, from)) {
      if ((std::to_integer<std::uint8_t>(answer.front()) & kTypeMask) != kRetry) continue;
      endpoint->on_datagram(answer, from, worker::read_clock());
      say();
      ++proven;
    }
    if (i % 100 == 99) expect_honest_ones_served();
  }
  EXPECT_GT(proven, kMaxIncoming);
  if (heap_before > 0) {
    EXPECT_LT(heap_most, heap_before + kMaxGrowthBytes);
  }
}

}  // namespace
}  // namespace weir
