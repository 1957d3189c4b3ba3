// A process that did not run for longer than its timers allow reads its socket before it looks at them.
#include <gtest/gtest.h>

#include <chrono>

#include "sim/host.h"
#include "sim/world.h"
#include "weir/method.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

constexpr Method kWork = "sim.work";

// Host 0 answers at once. Host 1 makes one call and stalls before the reply comes.
class OneCall final : public Application {
 public:
  explicit OneCall(Duration deadline) : deadline_(deadline) {
    for (HostId id = 0; id < 2; ++id) {
      world_.network.add_host(Address::v4(0x0a000001u + id, kDataPort), {.latency = 1ms});
      engine::EngineConfig config{.secret = crypto::SharedSecret::from_text("a secret of all hosts").value()};
      config.port = kDataPort;
      config.accepts = id == 0;
      hosts_[id] = std::make_unique<Host>(world_, id, config, SimLink::Options{}, std::nullopt, *this);
    }
  }

  void on_start(HostId host) override {
    if (host == 1) return;
    const engine::Handler handler{
        .run = [](void* context, transfer::IncomingTransfer& request,
                  Instant now) { static_cast<OneCall*>(context)->hosts_[0]->engine().reply(request, {}, {}, now); },
        .context = this};
    ASSERT_TRUE(hosts_[0]->engine().serve(kWork.id(), kWork.name(), handler).has_value());
  }
  void on_stop(HostId) override {}

  void begin() {
    for (const auto& host : hosts_) host->start();
    outgoing_.owner = this;
    outgoing_.complete = [](transfer::OutgoingCall& call, const transfer::Outcome& outcome) {
      OneCall& self = *static_cast<Outgoing&>(call).owner;
      self.is_over = true;
      self.failure = outcome.failed ? outcome.sentence : "";
    };
    outgoing_.method = kWork.id();
    outgoing_.deadline = world_.now() + deadline_;
    outgoing_.peer = hosts_[1]->peer(*hosts_[0]).value();
    hosts_[1]->engine().submit(outgoing_, world_.now());
  }

  void run(Duration stall) {
    begin();
    run_for(7ms);  // the hello, its answer, and half of the way of the reply
    ASSERT_FALSE(is_over);
    hosts_[1]->stall_until(world_.now() + stall);
    run_for(stall + 100ms);
  }

  // The machine has too much to do: the caller runs for moments, and the callee not at all meanwhile.
  void run_by_moments(int count, Duration absence, Duration moment) {
    begin();
    run_for(1ms);
    hosts_[0]->stall_until(world_.now() + count * (absence + moment));
    for (int i = 0; i < count; ++i) {
      hosts_[1]->stall_until(world_.now() + absence);
      run_for(absence + moment);
    }
    run_for(1s);
  }

  bool is_over = false;
  std::string failure;

 private:
  struct Outgoing : transfer::OutgoingCall {
    OneCall* owner = nullptr;
  };
  void run_for(Duration length) {
    const Instant end = world_.now() + length;
    while (world_.queue.run_next(end)) {
    }
  }

  World world_{1, false};
  Duration deadline_;
  Outgoing outgoing_;
  std::unique_ptr<Host> hosts_[2];
};

TEST(AStalledCaller, FindsTheReplyInItsSocketAlthoughItsPeerWasSilentSince) {
  OneCall one(60s);
  one.run(20s);
  EXPECT_TRUE(one.is_over);
  EXPECT_EQ(one.failure, "");
}

TEST(AStalledCaller, FindsTheReplyInItsSocketAlthoughTheDeadlineHasPassed) {
  OneCall one(1s);
  one.run(2s);
  EXPECT_TRUE(one.is_over);
  EXPECT_EQ(one.failure, "");
}

TEST(AStalledCaller, DoesNotGiveUpAPeerThatItCouldOnlyWaitForByMoments) {
  OneCall one(60s);
  one.run_by_moments(20, 700ms, 20ms);
  EXPECT_TRUE(one.is_over);
  EXPECT_EQ(one.failure, "");
}

}  // namespace
}  // namespace weir::sim
