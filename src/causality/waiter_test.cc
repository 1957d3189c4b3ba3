#include "causality/waiter.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir::causality {
namespace {

struct Told final : Waiter {
  Told(std::uint32_t conditions, std::vector<Answer>& answers_, int& destroyed_)
      : Waiter(conditions), answers(answers_), destroyed(destroyed_) {}
  void tell(Answer answer) override { answers.push_back(answer); }
  void destroy() override {
    ++destroyed;
    delete this;
  }
  std::vector<Answer>& answers;
  int& destroyed;
};

struct WaiterTest : ::testing::Test {
  std::vector<Answer> answers;
  int destroyed = 0;
  Told* make(std::uint32_t conditions) { return new Told(conditions, answers, destroyed); }
};

TEST_F(WaiterTest, IsToldOnceByTheLastConditionThatIsMet) {
  Told* waiter = make(2);
  EXPECT_EQ(waiter->arrive(), Answer::wait);
  waiter->meet();
  EXPECT_TRUE(answers.empty());
  waiter->meet();
  EXPECT_EQ(answers, std::vector{Answer::go});
  EXPECT_EQ(waiter->look(), Answer::go);
  waiter->release();
  EXPECT_EQ(destroyed, 1);
}

TEST_F(WaiterTest, IsToldOfTheFirstFailureOnly) {
  Told* waiter = make(3);
  EXPECT_EQ(waiter->arrive(), Answer::wait);
  waiter->meet();
  waiter->fail();
  waiter->fail();
  waiter->meet();
  EXPECT_EQ(answers, std::vector{Answer::fail});
  EXPECT_EQ(waiter->look(), Answer::fail);
  waiter->release();
}

TEST_F(WaiterTest, IsAnsweredAtItsArrivalIfAllWasMetOnTheWay) {
  Told* waiter = make(2);
  waiter->meet();
  waiter->meet();
  EXPECT_EQ(waiter->arrive(), Answer::go);
  EXPECT_TRUE(answers.empty());
  waiter->release();
}

TEST_F(WaiterTest, IsAnsweredAtItsArrivalIfOneFailedOnTheWay) {
  Told* waiter = make(2);
  waiter->fail();
  EXPECT_EQ(waiter->arrive(), Answer::fail);
  waiter->meet();
  waiter->fail();
  EXPECT_TRUE(answers.empty()) << "it knows";
  waiter->release();
}

TEST_F(WaiterTest, WhoHasLeftIsToldNothing) {
  Told* waiter = make(2);
  EXPECT_EQ(waiter->arrive(), Answer::wait);
  EXPECT_FALSE(waiter->has_left());
  EXPECT_TRUE(waiter->leave());
  EXPECT_TRUE(waiter->has_left());
  waiter->meet();
  waiter->meet();
  waiter->fail();
  EXPECT_TRUE(answers.empty());
  waiter->release();
  Told* traveller = make(1);
  traveller->meet();
  EXPECT_TRUE(traveller->leave()) << "it never arrived";
  traveller->release();
  Told* told = make(1);
  EXPECT_EQ(told->arrive(), Answer::wait);
  told->meet();
  EXPECT_FALSE(told->leave()) << "it was told before";
  told->release();
}

TEST_F(WaiterTest, GoesWithItsLastReference) {
  Told* waiter = make(1);
  waiter->hold();
  waiter->release();
  EXPECT_EQ(destroyed, 0);
  waiter->release();
  EXPECT_EQ(destroyed, 1);
}

}  // namespace
}  // namespace weir::causality
