#include "token/grant_pace.h"

#include <gtest/gtest.h>

namespace weir::token {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kRate = 3'125'000'000;  // 25 Gbit/s

TEST(GrantPace, WithoutARateAnyNumberMayWrite) {
  GrantPace pace(0);
  EXPECT_FALSE(pace.paces());
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_TRUE(pace.may_begin());
    EXPECT_FALSE(pace.on_begin(1ms));
  }
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(pace.on_end());
}

TEST(GrantPace, WithoutARateItMeasuresOnceThreeAreKnown) {
  GrantPace pace(0);
  EXPECT_FALSE(pace.set_senders(2));
  EXPECT_FALSE(pace.paces());
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(pace.on_begin(20us));
  EXPECT_TRUE(pace.set_senders(3)) << "the two are told what they may have in flight now";
  EXPECT_TRUE(pace.is_measured());
  EXPECT_FALSE(pace.may_begin());
  EXPECT_EQ(pace.share(20us), GrantWindow::kFirstBytes / 2);
  static_cast<void>(pace.on_end());
  EXPECT_TRUE(pace.may_begin());
  EXPECT_FALSE(pace.set_senders(2));
  EXPECT_FALSE(pace.paces());
  GrantPace told(kRate);
  EXPECT_FALSE(told.set_senders(100));
  EXPECT_FALSE(told.is_measured());
}

TEST(GrantPace, HasRoomForARoundTripAndATrain) {
  const GrantPace pace(kRate);
  EXPECT_EQ(pace.room(20us), 62'500u + GrantPace::kTrainBytes);
  EXPECT_EQ(pace.room(0us), pace.room(20us)) << "before it is known";
  EXPECT_EQ(pace.room(2ms), 6'250'000u + GrantPace::kTrainBytes);
}

// Senders whose first bytes come through a queue of what others were granted are not farther away for that.
TEST(GrantPace, ItsOwnQueueIsNoPartOfARoundTrip) {
  GrantPace pace(kRate);
  EXPECT_EQ(pace.judge(20us), 20us);
  Duration took = 20us;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t room = pace.room(took);
    const Duration queue{static_cast<std::int64_t>(room * 1'000'000'000 / kRate)};
    took = pace.judge(std::max<Duration>(20us, queue));
    EXPECT_EQ(took, 20us);
  }
  EXPECT_GE(pace.judge(2ms), 1950us) << "one that is far away";
}

TEST(GrantPace, FewWriteAtOnceAndSharesNeverAddUpToMore) {
  GrantPace pace(kRate);
  std::uint32_t begun = 0;
  for (; pace.may_begin(); ++begun) {
    EXPECT_FALSE(pace.on_begin(20us)) << "nobody is told a smaller share than before";
    EXPECT_EQ(pace.share(20us), pace.room(20us) / 4);
  }
  EXPECT_EQ(begun, 4u);
  EXPECT_GE(pace.share(20us), GrantPace::kLeastShare);
  EXPECT_FALSE(pace.on_first_bytes());
}

TEST(GrantPace, OneThatIsAloneHasAllAfterARoundTripAndLessWhenOthersCome) {
  GrantPace pace(kRate);
  EXPECT_FALSE(pace.on_begin(20us));
  EXPECT_TRUE(pace.on_first_bytes());
  EXPECT_EQ(pace.share(20us), pace.room(20us));
  EXPECT_TRUE(pace.on_begin(20us));
  EXPECT_EQ(pace.share(20us), pace.room(20us) / 2);
  EXPECT_TRUE(pace.on_end());
  EXPECT_EQ(pace.share(20us), pace.room(20us));
}

TEST(GrantPace, SharesStayWhileOneEndsAndAnotherBegins) {
  GrantPace pace(kRate);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(pace.on_begin(20us));
  EXPECT_FALSE(pace.on_end());
  EXPECT_FALSE(pace.on_begin(20us));
  EXPECT_EQ(pace.share(20us), pace.room(20us) / 4);
}

TEST(GrantPace, OthersBeginInThePlaceOfThoseThatStandStill) {
  GrantPace pace(kRate);
  for (int i = 0; i < 4; ++i) static_cast<void>(pace.on_begin(20us));
  EXPECT_FALSE(pace.may_begin());
  pace.set_stalled(1);
  EXPECT_TRUE(pace.may_begin());
  static_cast<void>(pace.on_begin(20us));
  EXPECT_FALSE(pace.may_begin());
  for (int i = 0; i < 5; ++i) static_cast<void>(pace.on_end());
  EXPECT_TRUE(pace.may_begin());
  EXPECT_EQ(pace.writes(), 0u);
}

}  // namespace
}  // namespace weir::token
