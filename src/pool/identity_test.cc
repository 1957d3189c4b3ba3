// Pools that prove who they are, over real sockets.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::code_of;
using testing::identity_client;
using testing::identity_server;
using testing::Listener;
using testing::open;
using testing::sentence_of;
using testing::serve_echo;
using testing::TestAuthority;
using testing::TestDirectory;
using testing::text_of;

// ---- turned by the application ----

TEST(PoolsWithoutThreads, ShakeHandsInsidePoll) {
  TestAuthority authority;
  Pool server = open(identity_server(authority.identity({"127.0.0.1"}), 0));
  serve_echo(server);
  Pool client = open(identity_client(authority.identity({"client.test"}), 0));
  int answered = 0;
  for (int i = 0; i < 20; ++i) {
    client.peer(server.listen_address()).unary("echo", "x").then([&](Result<Reply> reply) {
      EXPECT_EQ(text_of(reply), "x");
      ++answered;
    });
  }
  while (answered < 20) {
    server.poll();
    client.poll();
  }
}

TEST(PoolsWithoutThreads, SleepBetweenTheStepsOfAHandshake) {
  TestAuthority authority;
  Pool server = open(identity_server(authority.identity({"127.0.0.1"}), 0));
  serve_echo(server);
  std::atomic<bool> is_over{false};
  std::thread poller([&] {
    while (!is_over) server.poll_for(10ms);
  });
  for (int i = 0; i < 5; ++i) {
    Pool client = open(identity_client(authority.identity({"client.test"}), 0));
    EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x").get()), "x");
  }
  is_over = true;
  poller.join();
}

// ---- names ----

TEST(IdentityOfPeers, IsTheAddressUnlessANameIsGiven) {
  TestAuthority authority;
  Pool by_address = open(identity_server(authority.identity({"127.0.0.1"})));
  Pool by_name = open(identity_server(authority.identity({"a.test", "*.b.test"})));
  serve_echo(by_address);
  serve_echo(by_name);
  Pool client = open(identity_client(authority.identity({"client.test"})));
  EXPECT_EQ(text_of(client.peer(by_address.listen_address()).unary("echo", "x").get()), "x");
  EXPECT_EQ(text_of(client.peer(by_name.listen_address(), {.name = "a.test"}).unary("echo", "x").get()), "x");
  for (const char* name : {"A.TEST.", "x.b.test"}) {
    Pool other = open(identity_client(authority.identity({"client.test"})));
    EXPECT_EQ(text_of(other.peer(by_name.listen_address(), {.name = name}).unary("echo", "x").get()), "x") << name;
  }
}

TEST(IdentityOfPeers, IsOneNamePerAddress) {
  TestAuthority authority;
  Pool server = open(identity_server(authority.identity({"a.test", "b.test"})));
  serve_echo(server);
  for (int round = 0; round < 10; ++round) {
    Pool client = open(identity_client(authority.identity({"client.test"})));
    // Both at once: whichever is asked for first gets through, and the other's failure is no concern of it.
    Call first = client.peer(server.listen_address(), {.name = "a.test"}).unary("echo", "x");
    Call second = client.peer(server.listen_address(), {.name = "b.test"}).unary("echo", "x");
    const Result<Reply> results[] = {first.get(), second.get()};
    const bool is_first = results[0].has_value();
    EXPECT_EQ(text_of(results[is_first ? 0 : 1]), "x");
    const Result<Reply>& refused = results[is_first ? 1 : 0];
    EXPECT_EQ(code_of(refused), Code::invalid_argument) << text_of(refused);
    EXPECT_NE(sentence_of(refused).find(is_first ? "a.test" : "b.test"), std::string::npos) << sentence_of(refused);
    EXPECT_EQ(code_of(client.peer(server.listen_address()).unary("echo", "x").get()), Code::invalid_argument);
    const char* name = is_first ? "a.test" : "b.test";
    EXPECT_EQ(text_of(client.peer(server.listen_address(), {.name = name}).unary("echo", "y").get()), "y");
  }
}

// A renewal tells everybody who ever asked for the address. One who asked for it under a name that was never proven
// must not be taken for served.
TEST(IdentityOfPeers, ANameThatWasNotProvenIsNotProvenByARenewalEither) {
  TestAuthority authority;
  std::atomic<int> handshakes{0};
  Pool server = open(identity_server(authority.identity({"a.test"}).authorise([&](std::string_view) {
    ++handshakes;
    return true;
  })));
  serve_echo(server);
  Config config = identity_client(authority.identity({"client.test"}));
  config.timeouts.credential = 200ms;
  Pool client = open(config);
  Peer honest = client.peer(server.listen_address(), {.name = "a.test"});
  Peer wrong = client.peer(server.listen_address(), {.name = "b.test"});
  EXPECT_EQ(text_of(honest.unary("echo", "x").get()), "x");
  EXPECT_EQ(code_of(wrong.unary("echo", "x").get()), Code::invalid_argument);
  for (const int before = handshakes; handshakes < before + 2;) {
    EXPECT_EQ(text_of(honest.unary("echo", "x").get()), "x");
    EXPECT_EQ(code_of(wrong.unary("echo", "x").get()), Code::invalid_argument);
  }
}

// A handshake that came from an address proves that address alone, not every name that we might call it by.
TEST(IdentityOfPeers, ACallerIsNotCalledBackUnderANameThatItDidNotProve) {
  TestAuthority authority;
  Pool ours = open(identity_server(authority.identity({"127.0.0.1", "ours.test"})));
  Pool theirs = open(identity_server(authority.identity({"127.0.0.1"})));
  serve_echo(ours);
  serve_echo(theirs);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(text_of(theirs.peer(ours.listen_address()).unary("echo", "x").get()), "x");
  const Result<Reply> refused =
      ours.peer(theirs.listen_address(), {.name = "theirs.test"}).unary("echo", "x", {.deadline = 4s}).get();
  EXPECT_EQ(code_of(refused), Code::unauthenticated) << text_of(refused);
  EXPECT_EQ(text_of(theirs.peer(ours.listen_address()).unary("echo", "x").get()), "x");
}

TEST(IdentityOfPeers, ACallerThatProvesItsAddressIsCalledBackByIt) {
  TestAuthority authority;
  std::atomic<int> handshakes{0};
  const auto counting = authority.identity({"127.0.0.1"}).authorise([&](std::string_view) {
    ++handshakes;
    return true;
  });
  Pool ours = open(identity_server(counting));
  Pool theirs = open(identity_server(counting));
  serve_echo(ours);
  serve_echo(theirs);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(text_of(theirs.peer(ours.listen_address()).unary("echo", "x").get()), "x");
    EXPECT_EQ(text_of(ours.peer(theirs.listen_address()).unary("echo", "x").get()), "x");
  }
  EXPECT_EQ(handshakes, 2) << "one, which both sides were asked about";
}

TEST(IdentityOfPeers, TwoWhoCallEachOtherAtOnceBothGetThrough) {
  TestAuthority authority;
  for (int round = 0; round < 10; ++round) {
    Pool ours = open(identity_server(authority.identity({"127.0.0.1"})));
    Pool theirs = open(identity_server(authority.identity({"127.0.0.1"})));
    serve_echo(ours);
    serve_echo(theirs);
    std::vector<Call> calls;
    for (int i = 0; i < 20; ++i) {
      calls.push_back(ours.peer(theirs.listen_address()).unary("echo", "x"));
      calls.push_back(theirs.peer(ours.listen_address()).unary("echo", "x"));
    }
    for (Call& call : calls) EXPECT_EQ(text_of(call.get()), "x");
  }
}

// ---- who may call ----

TEST(Callers, AreThoseOnTheListLessThoseOnTheOther) {
  TestAuthority authority;
  auto heard = std::make_shared<Listener>();
  Config config =
      identity_server(authority.identity({"127.0.0.1"}).allow({"*.rack1.test", "10.1.2.3"}).deny({"bad.rack1.test"}));
  config.subscriber = heard;
  Pool server = open(config);
  std::atomic<int> runs{0};
  ASSERT_TRUE(server.serve_inline("run", [&](InlineRequest& request) {
    ++runs;
    request.reply("ran");
  }));
  const auto call_as = [&](std::vector<std::string> names) {
    Pool client = open(identity_client(authority.identity(std::move(names))));
    return client.peer(server.listen_address()).unary("run", "").get();
  };
  EXPECT_EQ(text_of(call_as({"good.rack1.test"})), "ran");
  EXPECT_EQ(text_of(call_as({"10.1.2.3"})), "ran");
  const int allowed = runs;
  std::size_t refusals = 0;
  for (const char* name : {"good.rack2.test", "bad.rack1.test", "10.1.2.4", "rack1.test"}) {
    const Result<Reply> refused = call_as({name});
    EXPECT_EQ(code_of(refused), Code::refused) << text_of(refused);
    EXPECT_NE(sentence_of(refused).find(name), std::string::npos) << sentence_of(refused);
    EXPECT_FALSE(!refused && refused.error().may_have_run());
    await([&] { return heard->failures().size() > refusals; });
    const Listener::Failure failure = heard->failures()[refusals++];
    EXPECT_EQ(failure.code, Code::refused);
    EXPECT_NE(failure.sentence.find(name), std::string::npos) << failure.sentence;
    EXPECT_NE(failure.peer.find("127.0.0.1:"), std::string::npos) << failure.peer;
  }
  // A name that was revoked is not made good by another.
  EXPECT_EQ(code_of(call_as({"good.rack1.test", "bad.rack1.test"})), Code::refused);
  EXPECT_EQ(runs, allowed);
}

TEST(Callers, AreShownToTheApplicationByAllOfTheirNames) {
  TestAuthority authority;
  std::mutex mutex;
  std::set<std::string> seen;
  Pool server = open(identity_server(authority.identity({"127.0.0.1"}).authorise([&](std::string_view name) {
    std::lock_guard lock(mutex);
    seen.insert(std::string(name));
    return name == "third.test";
  })));
  serve_echo(server);
  Pool good = open(identity_client(authority.identity({"first.test", "10.0.0.9", "third.test"})));
  EXPECT_EQ(text_of(good.peer(server.listen_address()).unary("echo", "x").get()), "x");
  Pool bad = open(identity_client(authority.identity({"fourth.test"})));
  const Result<Reply> refused = bad.peer(server.listen_address()).unary("echo", "x").get();
  EXPECT_EQ(code_of(refused), Code::refused) << text_of(refused);
  std::lock_guard lock(mutex);
  EXPECT_TRUE(seen.contains("first.test"));
  EXPECT_TRUE(seen.contains("third.test"));
  EXPECT_TRUE(seen.contains("fourth.test"));
}

TEST(Callers, AreKnownToHandlersByWhatTheirCertificatesProve) {
  TestAuthority authority;
  Pool server = open(identity_server(authority.identity({"127.0.0.1"})));
  ASSERT_TRUE(server.serve("who", [](Request request) -> Task<Reply> {
    const Caller caller = request.caller();
    std::string said(caller.name);
    for (const std::string& name : caller.names) said += " " + name;
    if (caller.proves("third.test")) said += " third";
    EXPECT_TRUE(caller.address.starts_with("127.0.0.1:")) << caller.address;
    co_return Reply{said};
  }));
  const std::string label(40, 'a');
  const std::string long_name = label + "." + label + ".test";  // longer than a credential's
  const auto ask_as = [&](std::vector<std::string> names) {
    Config config = identity_client(authority.identity(std::move(names)));
    Pool client = open(config);
    return text_of(client.peer(server.listen_address()).unary("who", "").get());
  };
  EXPECT_EQ(ask_as({"10.0.0.9", "first.test", "third.test"}), "first.test first.test third.test 10.0.0.9 third");
  EXPECT_EQ(ask_as({long_name}), long_name + " " + long_name);
  EXPECT_EQ(ask_as({"10.0.0.9"}), "10.0.0.9 10.0.0.9");
}

TEST(Callers, AreRefusedByAnApplicationThatThrows) {
  TestAuthority authority;
  Pool server = open(identity_server(
      authority.identity({"127.0.0.1"}).authorise([](std::string_view) -> bool { throw std::runtime_error("no"); })));
  Pool client = open(identity_client(authority.identity({"client.test"})));
  EXPECT_EQ(code_of(client.peer(server.listen_address()).unary("echo", "x").get()), Code::refused);
}

// ---- the key log ----

TEST(KeyLog, HasTheSecretsOfEachHandshakeAndIsReported) {
  TestAuthority authority;
  TestDirectory directory;
  auto heard = std::make_shared<Listener>();
  Pool server = open(identity_server(authority.identity({"127.0.0.1"})));
  serve_echo(server);
  Config config = identity_client(authority.identity({"client.test"}).key_log(directory.path("keys")));
  config.subscriber = heard;
  Pool client = open(config);
  EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x").get()), "x");
  ASSERT_EQ(heard->degraded("key log").size(), 1u);
  EXPECT_NE(heard->degraded("key log")[0].find("file"), std::string::npos);
  std::stringstream text;
  text << std::ifstream(directory.path("keys")).rdbuf();
  for (const char* label : {"CLIENT_HANDSHAKE_TRAFFIC_SECRET ", "SERVER_HANDSHAKE_TRAFFIC_SECRET ",
                            "CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 ", "EXPORTER_SECRET "}) {
    EXPECT_NE(text.str().find(label), std::string::npos) << label;
  }
  EXPECT_EQ(handshake::testing::mode_of(directory.path("keys")) & 077, 0u) << "others can read it";
}

TEST(KeyLog, ThatCannotBeWrittenIsAnErrorAtOpen) {
  TestAuthority authority;
  const Result<Pool> pool =
      Pool::open(identity_client(authority.identity({"client.test"}).key_log("/nowhere/at/all/keys")));
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code(), Code::system);
  EXPECT_NE(pool.error().message().find("/nowhere/at/all/keys"), std::string_view::npos);
}

TEST(Rules, HoldForThoseWhomWeCallAsWell) {
  const TestAuthority authority;
  Pool alice = open(identity_server(authority.identity({"127.0.0.1", "alice.test"}).allow({"carol.test"})));
  Pool bob = open(identity_server(authority.identity({"127.0.0.1", "bob.test"})));
  serve_echo(alice);
  serve_echo(bob);
  EXPECT_EQ(text_of(alice.peer(bob.listen_address()).unary("echo", "hello").get()), "hello");
  // Bob has a credential with Alice now, but she has not said that he may call.
  const Result<Reply> back = bob.peer(alice.listen_address()).unary("echo", "hello").get();
  EXPECT_EQ(code_of(back), Code::refused) << text_of(back);
}

TEST(Rules, ARevokedPeerIsNotCalled) {
  const TestAuthority authority;
  Pool bob = open(identity_server(authority.identity({"127.0.0.1", "bob.test"})));
  serve_echo(bob);
  Pool alice = open(identity_client(authority.identity({"alice.test"}).deny({"bob.test"})));
  const Result<Reply> refused = alice.peer(bob.listen_address()).unary("echo", "hello").get();
  EXPECT_EQ(code_of(refused), Code::unauthenticated) << text_of(refused);
  EXPECT_NE(sentence_of(refused).find("revoked"), std::string::npos) << sentence_of(refused);
}

bool is_taken(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_bound = ::bind(descriptor, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  ::close(descriptor);
  return !is_bound;
}

TEST(Ports, CanBeFixed) {
  const TestAuthority authority;
  Config config = identity_server(authority.identity({"127.0.0.1"}));
  config.data_port = 65'535;
  config.workers = 2;
  EXPECT_EQ(Pool::open(config).error().code(), Code::invalid_argument);

  do {
    config.data_port = testing::DatagramSocket().local().port;
  } while (config.data_port == 65'535 || is_taken(config.data_port) || is_taken(config.data_port + 1));
  Pool server = open(config);
  serve_echo(server);
  EXPECT_TRUE(is_taken(config.data_port));
  EXPECT_TRUE(is_taken(config.data_port + 1));
  // Several, so that both workers are called.
  for (int i = 0; i < 4; ++i) {
    Pool client = open(identity_client(authority.identity({"client.test"})));
    EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x").get()), "x");
  }
  EXPECT_EQ(Pool::open(config).error().code(), Code::system) << "somebody else has them";
}

}  // namespace
}  // namespace weir
