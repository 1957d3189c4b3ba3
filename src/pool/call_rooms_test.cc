#include "pool/call_rooms.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <optional>
#include <vector>

namespace weir::pool {
namespace {

struct Waiter final : CallRooms::Waiter {
  void on_room(Result<CallRoom> given) noexcept override {
    result = std::move(given);
    if (then) then();
  }
  bool is_in() const { return result && result->has_value(); }
  std::optional<Result<CallRoom>> result;
  std::function<void()> then;
};

class CallRoomsTest : public ::testing::Test {
 protected:
  // As many as there is room for now.
  std::size_t fill(unsigned priority) {
    std::size_t count = 0;
    while (std::optional<CallRoom> one = rooms->try_enter(priority)) {
      out.push_back(*std::move(one));
      ++count;
    }
    return count;
  }
  Waiter& wait(unsigned priority) {
    Waiter& waiter = waiters.emplace_back();
    EXPECT_FALSE(rooms->enter(priority, waiter));
    return waiter;
  }

  std::shared_ptr<CallRooms> rooms = std::make_shared<CallRooms>(160);
  std::deque<Waiter> waiters;
  std::vector<CallRoom> out;
};

TEST_F(CallRoomsTest, TheLeastUrgentFindNoRoomFirst) {
  EXPECT_EQ(fill(7), 90u);
  EXPECT_EQ(fill(7), 0u);
  EXPECT_EQ(fill(3), 40u);
  EXPECT_EQ(fill(0), 30u);
  EXPECT_EQ(fill(0), 0u);
  EXPECT_EQ(rooms->out(), 160u);
  out.clear();
  EXPECT_EQ(rooms->out(), 0u);
  EXPECT_EQ(fill(0), 160u);
}

TEST_F(CallRoomsTest, EvenOneRoomIsForEverybody) {
  rooms = std::make_shared<CallRooms>(1);
  for (unsigned priority = 0; priority < 8; ++priority) {
    EXPECT_EQ(fill(priority), 1u);
    out.clear();
  }
}

TEST_F(CallRoomsTest, TheMostUrgentGoesOnFirstAndTheFirstOfThem) {
  fill(0);
  Waiter& low = wait(5);
  Waiter& first = wait(1);
  Waiter& second = wait(1);
  Waiter& urgent = wait(0);
  EXPECT_EQ(rooms->waiting(), 4u);
  out.pop_back();
  EXPECT_TRUE(urgent.is_in());
  EXPECT_FALSE(first.is_in() || second.is_in() || low.is_in());
  // The next one needs ten to be free.
  for (int i = 0; i < 11; ++i) {
    EXPECT_FALSE(first.is_in());
    out.pop_back();
  }
  EXPECT_TRUE(first.is_in());
  EXPECT_FALSE(second.is_in());
  out.pop_back();
  EXPECT_TRUE(second.is_in());
  EXPECT_FALSE(low.is_in());
  out.clear();
  EXPECT_TRUE(low.is_in());
  EXPECT_EQ(rooms->waiting(), 0u);
}

TEST_F(CallRoomsTest, NobodyOvertakesWhoWaitsAtItsPriorityOrAMoreUrgentOne) {
  fill(4);
  wait(4);
  EXPECT_FALSE(rooms->try_enter(4));
  EXPECT_FALSE(rooms->try_enter(6));
  EXPECT_TRUE(rooms->try_enter(3));
}

TEST_F(CallRoomsTest, WhoGivesUpIsNotTold) {
  fill(0);
  Waiter& gone = wait(2);
  Waiter& other = wait(2);
  EXPECT_TRUE(rooms->cancel(gone));
  EXPECT_FALSE(rooms->cancel(gone));
  out.clear();
  EXPECT_FALSE(gone.result);
  EXPECT_TRUE(other.is_in());
  EXPECT_FALSE(rooms->cancel(other));
}

TEST_F(CallRoomsTest, WhoIsToldMayGiveBackAtOnce) {
  fill(0);
  std::size_t told = 0;
  for (int i = 0; i < 1'000; ++i) {
    Waiter& waiter = wait(0);
    waiter.then = [&] {
      ++told;
      waiter.result.reset();
    };
  }
  out.pop_back();
  EXPECT_EQ(told, 1'000u);
}

TEST_F(CallRoomsTest, ClosingTellsAllWhoWaitAndWhoComes) {
  fill(0);
  Waiter& one = wait(0);
  Waiter& other = wait(7);
  rooms->close();
  for (const Waiter* waiter : {&one, &other}) {
    ASSERT_TRUE(waiter->result);
    EXPECT_EQ(waiter->result->error().code(), Code::closed);
  }
  Waiter late;
  const auto refused = rooms->enter(0, late);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->error().code(), Code::closed);
  EXPECT_FALSE(rooms->try_enter(0));
}

TEST_F(CallRoomsTest, OnlySoManyWait) {
  fill(0);
  for (std::size_t i = 0; i < CallRooms::kMostWaiting; ++i) wait(3);
  Waiter late;
  const auto refused = rooms->enter(0, late);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->error().code(), Code::overloaded);
  for (Waiter& waiter : waiters) EXPECT_TRUE(rooms->cancel(waiter));
}

// What a child inherits is the parent's: threads that it does not have may have held the lock.
TEST_F(CallRoomsTest, AForkedChildGivesNothingBack) {
  fill(7);
  const std::size_t before = rooms->out();
  const pid_t child = fork();
  if (child == 0) {
    out.clear();
    _exit(rooms->out() == before ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  out.clear();
  EXPECT_EQ(rooms->out(), 0u);
}

}  // namespace
}  // namespace weir::pool
