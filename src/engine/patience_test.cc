// CallOptions::wait_for_ready: calls that wait for a peer or method to come up.
#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::TestCall;
using namespace std::chrono_literals;

struct PatientCall : TestCall {
  PatientCall() { is_patient = true; }
};

TEST(Patience, AMethodThatIsNotServedYetIsTriedAgainUntilItIs) {
  Pair pair;
  PatientCall patient;
  TestCall other;
  pair.call(patient, "echo", std::string(5'000, 'x'));
  pair.call(other, "echo", "now");
  ASSERT_TRUE(pair.run_until([&] { return other.completions != 0; }));
  EXPECT_EQ(other.code, Code::unknown_method);
  pair.run_for(300ms);
  EXPECT_EQ(patient.completions, 0);
  EXPECT_EQ(pair.client().census().calls_queued + pair.client().census().calls_sent, 1u);
  pair.serve_echo();
  ASSERT_TRUE(pair.run_until([&] { return patient.completions != 0; }));
  EXPECT_EQ(patient.reply, std::string(5'000, 'x'));
  EXPECT_EQ(pair.handled, 1);
}

TEST(Patience, APeerThatIsNotThereYetIsTriedAgainUntilItIs) {
  Pair pair;
  pair.loss = 1;
  PatientCall patient;
  TestCall other;
  pair.call(patient, "echo", "hello", {}, 60s);
  pair.call(other, "echo", "now", {}, 60s);
  ASSERT_TRUE(pair.run_until([&] { return other.completions != 0; }));
  EXPECT_EQ(other.code, Code::peer_failed);
  pair.run_for(10s);
  EXPECT_EQ(patient.completions, 0);
  pair.loss = 0;
  pair.serve_echo();
  ASSERT_TRUE(pair.run_until([&] { return patient.completions != 0; }));
  EXPECT_EQ(patient.reply, "hello");
}

TEST(Patience, EndsWithTheDeadline) {
  for (const double loss : {0.0, 1.0}) {
    Pair pair;
    pair.loss = loss;
    PatientCall patient;
    pair.call(patient, "nobody", "hello", {}, 7s);
    const Instant end = pair.now + 7s;
    ASSERT_TRUE(pair.run_until([&] { return patient.completions != 0; }));
    EXPECT_EQ(patient.code, Code::timeout);
    EXPECT_FALSE(patient.may_have_run);
    EXPECT_GE(pair.now, end);
    EXPECT_EQ(pair.client().census().calls_queued, 0u);
  }
}

TEST(Patience, EndsWhenTheCallIsCancelledOrThePoolIsClosed) {
  Pair pair;
  PatientCall cancelled, closed;
  pair.call(cancelled, "nobody", "a");
  pair.call(closed, "nobody", "b");
  pair.run_for(100ms);
  pair.client().cancel(cancelled, pair.now);
  pair.client().close(pair.now);
  pair.client().deliver(pair.now);
  EXPECT_EQ(cancelled.code, Code::cancelled);
  EXPECT_EQ(closed.code, Code::closed);
  EXPECT_EQ(pair.client().census().timers, 0u);
  EXPECT_TRUE(pair.client().is_quiet());
}

TEST(Patience, DoesNotHideWhatStaysWrong) {
  Pair pair(testing::test_config(false, 1111, "one secret for this test"), testing::test_config(true, 2222));
  PatientCall patient;
  pair.call(patient, "echo", "hello", {}, 60s);
  ASSERT_TRUE(pair.run_until([&] { return patient.completions != 0; }));
  EXPECT_EQ(patient.code, Code::unauthenticated);
}

TEST(Patience, AHandlersOwnErrorIsAnAnswer) {
  Pair pair;
  pair.serve("fails", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    engine.fail(request, Code::refused, "no", at);
  });
  PatientCall patient;
  pair.call(patient, "fails", "hello");
  ASSERT_TRUE(pair.run_until([&] { return patient.completions != 0; }));
  EXPECT_EQ(patient.code, Code::refused);
  EXPECT_TRUE(patient.may_have_run);
}

}  // namespace
}  // namespace weir::engine
