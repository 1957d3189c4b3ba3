// CallOptions::wait_for_ready between pools with identities: a peer whose handshakes fail, because it is not up yet, is
// asked for again until it is.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::code_of;
using testing::identity_client;
using testing::identity_server;
using testing::open;
using testing::serve_echo;
using testing::TestAuthority;
using testing::text_of;

// The number of the caller's workers.
class PatientCalls : public ::testing::TestWithParam<int> {
 protected:
  // An address where nobody is, for now.
  std::string free_address() {
    Pool server = open(identity_server(authority.identity({"127.0.0.1"})));
    return server.listen_address();
  }
  Pool open_at(const std::string& address) {
    Config config = identity_server(authority.identity({"127.0.0.1"}));
    config.listen = address;
    return open(config);
  }

  TestAuthority authority;
  Pool client = open(identity_client(authority.identity({"client.test"}), GetParam()));
};

TEST_P(PatientCalls, WaitForAServerThatIsNotThereYet) {
  const std::string address = free_address();
  const Peer peer = client.peer(address);
  std::vector<Call> patient;
  for (int i = 0; i < 20; ++i) patient.push_back(peer.unary("echo", "x", {.deadline = 1h, .wait_for_ready = true}));
  // Others are told at once, more than once; and those who wait go on waiting.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(code_of(peer.unary("echo", "x").get()), Code::peer_failed);
  Pool late = open_at(address);
  serve_echo(late);
  for (Call& call : patient) EXPECT_EQ(text_of(call.get()), "x");
}

TEST_P(PatientCalls, WaitForAMethodThatIsNotServedYet) {
  Pool server = open_at("127.0.0.1:0");
  const Peer peer = client.peer(server.listen_address());
  Call patient = peer.unary("echo", "x", {.deadline = 1h, .wait_for_ready = true});
  EXPECT_EQ(code_of(peer.unary("echo", "x").get()), Code::unknown_method);
  serve_echo(server);
  EXPECT_EQ(text_of(patient.get()), "x");
}

TEST_P(PatientCalls, EndWithTheirDeadlines) {
  Pool server = open_at("127.0.0.1:0");
  const std::string nobody = free_address();
  for (const std::string& address : {nobody, server.listen_address()}) {
    const Result<Reply> result =
        client.peer(address).unary("nobody", "x", {.deadline = 200ms, .wait_for_ready = true}).get();
    EXPECT_EQ(code_of(result), Code::timeout) << text_of(result);
    // A server may have been asked just then.
    EXPECT_FALSE(address == nobody && !result && result.error().may_have_run());
  }
}

TEST_P(PatientCalls, EndWithTheirPool) {
  const std::string address = free_address();
  Call patient = client.peer(address).unary("echo", "x", {.deadline = 1h, .wait_for_ready = true});
  EXPECT_EQ(code_of(client.peer(address).unary("echo", "x").get()), Code::peer_failed);
  static_cast<void>(client.close(1ms));
  EXPECT_EQ(code_of(patient.get()), Code::closed);
}

// What stays wrong however long one waits.
TEST_P(PatientCalls, DoNotWaitForAServerThatIsSomebodyElse) {
  Pool server = open_at("127.0.0.1:0");
  const Peer peer = client.peer(server.listen_address(), {.name = "b.test"});
  EXPECT_EQ(code_of(peer.unary("echo", "x", {.deadline = 1h, .wait_for_ready = true}).get()), Code::unauthenticated);
}

INSTANTIATE_TEST_SUITE_P(Workers, PatientCalls, ::testing::Values(0, 1));

}  // namespace
}  // namespace weir
