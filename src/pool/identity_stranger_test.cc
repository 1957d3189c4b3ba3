// Those who are no pools, over real sockets: callers and servers that speak something else, and wires that cut and
// reorder what is said in handshakes. Each is a code and a sentence to whoever called, an event, and nobody else's
// concern.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "handshake/raw_peer_testing.h"
#include "pool/identity_testing.h"
#include "worker/clock.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using handshake::testing::RawPeer;
using testing::await;
using testing::code_of;
using testing::DatagramSocket;
using testing::identity_client;
using testing::identity_server;
using testing::Listener;
using testing::open;
using testing::sentence_of;
using testing::TestAuthority;
using testing::text_of;

constexpr std::uint64_t kAlert = 0x100;  // QUIC's codes for TLS alerts
constexpr const char* kTls12 = "NORMAL:-VERS-ALL:+VERS-TLS1.2";

bool any_says(const std::vector<std::string>& sentences, std::string_view what) {
  return std::ranges::any_of(sentences, [&](const std::string& each) { return each.find(what) != std::string::npos; });
}

class Strangers : public ::testing::Test {
 protected:
  void SetUp() override {
    Config config = identity_server(authority.identity({"127.0.0.1"}));
    config.subscriber = at_server;
    server.emplace(open(config));
    ASSERT_TRUE(server->serve_inline("run", [this](InlineRequest& request) {
      ++runs;
      request.reply("ran");
    }));
  }
  std::shared_ptr<const handshake::Credentials> credentials(const std::string& name) const {
    const handshake::Issued issued = authority.issue({name});
    return handshake::testing::value_of(
        handshake::Credentials::from_pem(issued.chain_pem, issued.key_pem, authority.roots()));
  }
  void expect_served() {
    Pool honest = open(identity_client(authority.identity({"client.test"})));
    EXPECT_EQ(text_of(honest.peer(server->listen_address()).unary("run", "").get()), "ran");
  }

  TestAuthority authority;
  std::shared_ptr<Listener> at_server = std::make_shared<Listener>(), at_client = std::make_shared<Listener>();
  std::atomic<int> runs{0};
  std::optional<Pool> server;
};

// ---- callers ----

class StrangeCallers : public Strangers {
 protected:
  // What the server ended it with, as a QUIC code.
  std::optional<std::uint64_t> close_code_for(RawPeer::Options options) {
    options.words = std::vector<std::byte>(2);
    DatagramSocket socket;
    RawPeer caller(std::move(options), *Address::parse(server->listen_address()), worker::read_clock());
    await([&] {
      carry(socket, caller);
      return caller.is_gone();
    });
    EXPECT_TRUE(caller.heard.empty());
    EXPECT_EQ(runs, 0);
    return caller.close_code;
  }
  static void carry(const DatagramSocket& socket, RawPeer& peer) {
    Address address;
    ByteSpan bytes;
    while (peer.take(address, bytes, worker::read_clock())) socket.send(bytes, address);
    std::vector<std::byte> got;
    while (socket.receive(got, address)) peer.receive(got, address, worker::read_clock());
    if (peer.deadline() <= worker::read_clock()) peer.expire(worker::read_clock());
  }
  // Of one that never got so far as to prove its address.
  void expect_told_of_strangers(std::string_view says) {
    await([&] { return any_says(at_server->degraded("handshakes"), says); });
    EXPECT_TRUE(any_says(at_server->degraded("handshakes"), "1 failed unproven"));
    EXPECT_TRUE(at_server->failures().empty());
  }
};

TEST_F(StrangeCallers, WithoutCertificateAreToldSo) {
  EXPECT_EQ(close_code_for({}), kAlert + GNUTLS_A_CERTIFICATE_REQUIRED);
  await([this] { return !at_server->failures().empty(); });
  EXPECT_EQ(at_server->failures()[0].code, Code::unauthenticated);
  EXPECT_NE(at_server->failures()[0].sentence.find("showed no certificate"), std::string::npos)
      << at_server->failures()[0].sentence;
  EXPECT_NE(at_server->failures()[0].peer.find("127.0.0.1:"), std::string::npos);
  expect_served();
}

TEST_F(StrangeCallers, WithTls12AreToldSo) {
  EXPECT_EQ(close_code_for({.priority = kTls12, .credentials = credentials("client.test")}),
            kAlert + GNUTLS_A_HANDSHAKE_FAILURE);
  expect_told_of_strangers("no common version or algorithms with 127.0.0.1:");
  expect_served();
}

TEST_F(StrangeCallers, WithAnotherProtocolAreToldSo) {
  EXPECT_EQ(close_code_for({.protocol = "h3", .credentials = credentials("client.test")}),
            kAlert + GNUTLS_A_NO_APPLICATION_PROTOCOL);
  expect_told_of_strangers("no common protocol with 127.0.0.1:");
  expect_served();
}

// ---- servers ----

// Answers whoever comes first. One thread turns it.
class StrangeServer {
 public:
  explicit StrangeServer(RawPeer::Options options) {
    options.role = handshake::Role::responder;
    thread_ = std::thread([this, options = std::move(options)] {
      while (!is_over_) turn(options);
    });
  }
  ~StrangeServer() {
    is_over_ = true;
    thread_.join();
  }
  std::string address() const { return socket_.local().to_string(); }

 private:
  void turn(const RawPeer::Options& options) {
    socket_.wait(1ms);
    std::vector<std::byte> bytes;
    Address from;
    while (socket_.receive(bytes, from)) {
      if (!peer_) peer_.emplace(options, from, worker::read_clock());
      peer_->receive(bytes, from, worker::read_clock());
    }
    if (!peer_) return;
    if (peer_->deadline() <= worker::read_clock()) peer_->expire(worker::read_clock());
    ByteSpan answer;
    while (peer_->take(from, answer, worker::read_clock())) socket_.send(answer, from);
  }

  DatagramSocket socket_;
  std::optional<RawPeer> peer_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

class StrangeServers : public Strangers {
 protected:
  // The same pool calls honest servers meanwhile.
  void expect_failed(RawPeer::Options options, Code code, std::string_view says) {
    Config config = identity_client(authority.identity({"client.test"}));
    config.subscriber = at_client;
    Pool client = open(config);
    const StrangeServer strange(std::move(options));
    Call call = client.peer(strange.address()).unary("run", "");
    EXPECT_EQ(text_of(client.peer(server->listen_address()).unary("run", "").get()), "ran");
    const Result<Reply> result = call.get();
    EXPECT_EQ(code_of(result), code) << text_of(result);
    EXPECT_NE(sentence_of(result).find(says), std::string::npos) << sentence_of(result);
    EXPECT_FALSE(!result && result.error().may_have_run());
    ASSERT_EQ(at_client->failures().size(), 1u);
    EXPECT_EQ(at_client->failures()[0].code, code);
    EXPECT_TRUE(sentence_of(result).ends_with(at_client->failures()[0].sentence)) << sentence_of(result);
    EXPECT_EQ(at_client->failures()[0].peer, strange.address());
    EXPECT_EQ(text_of(client.peer(server->listen_address()).unary("run", "").get()), "ran");
  }
};

TEST_F(StrangeServers, WithoutCertificateAreRefused) {
  expect_failed({}, Code::refused, "no common version or algorithms");  // TLS has no alert that says more
}

TEST_F(StrangeServers, WithTls12AreRefused) {
  expect_failed({.priority = kTls12, .credentials = credentials("127.0.0.1")}, Code::refused, "TLS 1.3");
}

TEST_F(StrangeServers, WithAnotherProtocolAreRefused) {
  expect_failed({.protocol = "h3", .credentials = credentials("127.0.0.1")}, Code::refused, "no common protocol");
}

// ---- wires ----

// Between callers and the server's handshake port. The data goes past it.
class Wire {
 public:
  using Send = std::function<void(ByteSpan)>;
  // What becomes of one datagram; `number` counts those of both ways.
  using Carry = std::function<void(int number, bool to_server, ByteSpan bytes, const Send& send)>;

  Wire(const std::string& server, Carry carry) : server_(*Address::parse(server)), carry_(std::move(carry)) {
    thread_ = std::thread([this] {
      while (!is_over_) turn();
    });
  }
  ~Wire() {
    is_over_ = true;
    thread_.join();
  }
  std::string address() const { return inner_.local().to_string(); }

 private:
  void turn() {
    inner_.wait(1ms);
    std::vector<std::byte> bytes;
    Address from;
    while (inner_.receive(bytes, from)) {
      caller_ = from;
      carry_(number_++, true, bytes, [&](ByteSpan out) { outer_.send(out, server_); });
    }
    while (outer_.receive(bytes, from)) {
      carry_(number_++, false, bytes, [&](ByteSpan out) { inner_.send(out, caller_); });
    }
  }

  const Address server_;
  const Carry carry_;
  DatagramSocket inner_, outer_;
  Address caller_;
  int number_ = 0;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

class BadWires : public Strangers {
 protected:
  static constexpr int kDatagrams = 8;  // a handshake has about so many, both ways

  Result<Reply> call_through(const Wire& wire) {
    Config config = identity_client(authority.identity({"client.test"}));
    config.timeouts.handshake = 10s;
    Pool client = open(config);
    return client.peer(wire.address()).unary("run", "").get();
  }
};

TEST_F(BadWires, ThatCutADatagramShortOnlyLoseIt) {
  for (int which = 0; which < kDatagrams; ++which) {
    std::atomic<int> cut{0};
    const Wire wire(server->listen_address(), [&](int number, bool, ByteSpan bytes, const Wire::Send& send) {
      if (number == which) {
        ++cut;
        bytes = bytes.first(which % 3 == 0 ? bytes.size() - 1 : which % 3 == 1 ? bytes.size() / 2 : 1);
      }
      send(bytes);
    });
    EXPECT_EQ(text_of(call_through(wire)), "ran") << which;
    if (which < kDatagrams / 2) {
      EXPECT_EQ(cut, 1) << which;
    }
  }
  EXPECT_EQ(runs, kDatagrams);
  EXPECT_TRUE(at_server->failures().empty());
}

TEST_F(BadWires, ThatCutAHalfOfAllDatagramsShortOnlyLoseThem) {
  std::atomic<int> cut{0};
  const Wire wire(server->listen_address(), [&](int number, bool, ByteSpan bytes, const Wire::Send& send) {
    // Not every second one: a flight of two would always lose the same.
    const bool is_cut = number % 4 == 1 || number % 4 == 2;
    cut += is_cut ? 1 : 0;
    send(is_cut ? bytes.first(bytes.size() / 2) : bytes);
  });
  EXPECT_EQ(text_of(call_through(wire)), "ran");
  EXPECT_GE(cut, 2);
}

TEST_F(BadWires, ThatCutEveryDatagramShortAreAsGoodAsNone) {
  for (const bool to_server : {true, false}) {
    const Wire wire(server->listen_address(), [&](int, bool goes_to_server, ByteSpan bytes, const Wire::Send& send) {
      send(goes_to_server == to_server ? bytes.first(bytes.size() / 2) : bytes);
    });
    auto listener = std::make_shared<Listener>();
    Config config = identity_client(authority.identity({"client.test"}));
    config.timeouts.handshake = 300ms;
    config.subscriber = listener;
    Pool client = open(config);
    const Result<Reply> result = client.peer(wire.address()).unary("run", "").get();
    EXPECT_EQ(code_of(result), Code::peer_failed) << text_of(result);
    // A first packet that fits into the half of its datagram arrives.
    EXPECT_TRUE(sentence_of(result).starts_with("\"run\" at " + wire.address() + ": the peer did not answer") ||
                (!to_server && sentence_of(result).ends_with(wire.address() + " fell silent during the handshake")))
        << sentence_of(result);
    EXPECT_FALSE(!result && result.error().may_have_run());
    ASSERT_EQ(listener->failures().size(), 1u);
    EXPECT_TRUE(sentence_of(result).ends_with(listener->failures()[0].sentence)) << sentence_of(result);
  }
  EXPECT_EQ(runs, 0);
  expect_served();
}

TEST_F(BadWires, ThatReorderDatagramsDisturbNobody) {
  for (int which = 0; which < kDatagrams; ++which) {
    std::atomic<int> swapped{0};
    std::vector<std::byte> held;
    bool held_to_server = false;
    const Wire wire(server->listen_address(), [&](int number, bool to_server, ByteSpan bytes, const Wire::Send& send) {
      if (number == which) {
        held.assign(bytes.begin(), bytes.end());
        held_to_server = to_server;
        return;
      }
      send(bytes);
      if (held.empty() || held_to_server != to_server) return;
      send(std::exchange(held, {}));
      ++swapped;
    });
    EXPECT_EQ(text_of(call_through(wire)), "ran") << which;
    if (which < kDatagrams / 2) {
      EXPECT_EQ(swapped, 1) << which;
    }
  }
  EXPECT_EQ(runs, kDatagrams);
  EXPECT_TRUE(at_server->failures().empty());
}

}  // namespace
}  // namespace weir
