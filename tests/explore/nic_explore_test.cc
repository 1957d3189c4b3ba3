// The bucket of a network interface under all schedules: what is granted at one instant fits into it, whoever asks.
#include <memory>

#include "schedule/nic_shaper.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

using schedule::NicSender;
using schedule::NicShaper;

constexpr Instant kNow{1'000'000'000};
constexpr std::uint64_t kDepth = 100;

struct Shared {
  std::shared_ptr<NicShaper> nic = std::make_shared<NicShaper>(kDepth * NicShaper::kTrainsPerSecond, kNow);
  NicSender senders[2] = {NicSender(nic), NicSender(nic)};
  std::uint64_t sent[2] = {};
};

// Each sends 60 of the 100 bytes that fit, if it may; one of them tries twice, and counts 7 without a claim.
void claims(Scene& run) {
  auto shared = std::make_shared<Shared>();
  for (int i = 0; i < 2; ++i) {
    run.thread([shared, i] {
      NicSender& sender = shared->senders[i];
      for (int attempt = 0; attempt <= i; ++attempt) {
        if (!sender.claim(60, kNow)) continue;
        sender.settle(60, kNow);
        shared->sent[i] += 60;
      }
      if (i != 1) return;
      sender.charge(7, kNow);
      shared->sent[i] += 7;
    });
  }
  run.at_end([shared] {
    const std::uint64_t sent = shared->sent[0] + shared->sent[1];
    check(sent >= 67, "one of them may send");
    check(sent <= 67, "not both of them may send");
    check(shared->nic->owed(kNow) == sent, "every byte is counted once");
    check(!shared->senders[0].claim(60, kNow + Duration{1}), "what was sent has not drained");
    shared->senders[1].leave_line();
    check(shared->senders[0].claim(33, kNow + std::chrono::milliseconds(1)), "nothing is claimed any more");
    shared->senders[0].settle(0, kNow);
  });
}

TEST(ExploreNic, GrantsOneBucketfulInEverySchedule) { expect_sound({.name = "NIC, 2 senders"}, claims); }

TEST(ExploreNic, DefectsAreFound) {
  for (const Fault& fault : {Fault{"nic_shaper.cc", "::settle(", Fault::Kind::relax, Operation::exchange},
                             Fault{"nic_shaper.cc", "::claim(", Fault::Kind::relax, Operation::exchange}}) {
    expect_found({.name = "NIC, 2 senders"}, fault, claims);
  }
}

}  // namespace
}  // namespace weir::explore
