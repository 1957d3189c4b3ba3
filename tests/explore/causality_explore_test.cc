// The map of tracked calls: a waiter is told once, whatever ends, begins again or leaves meanwhile.
#include <memory>

#include "causality/map.h"
#include "causality/map_testing.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

using causality::Condition;
using causality::Map;
using causality::Moment;
using causality::Registration;
using causality::Token;
using causality::testing::Listener;

struct Shared {
  Map map{2, 4, 2};
  Token token = 0;
  Listener one{1}, other{1};
};

// As pool/ties.cc does: what is known at once is told here.
void await(Shared& shared, Listener& listener, Moment moment) {
  const Registration found = shared.map.add(listener, Condition{.token = shared.token, .moment = moment});
  if (found == Registration::waits) return;
  check(found == Registration::met || found == Registration::failed, "there is room, and the end is remembered");
  found == Registration::met ? listener.meet() : listener.fail();
}

std::shared_ptr<Shared> begin(Scene& run, bool will_fail) {
  auto shared = std::make_shared<Shared>();
  shared->token = shared->map.begin();
  run.at_end([shared, will_fail] {
    for (Listener* listener : {&shared->one, &shared->other}) {
      check(listener->goes() + listener->fails() == 1, "a waiter is told once");
      check((listener->fails() == 1) == will_fail, "a waiter is told the truth");
      listener->release();
      check(listener->is_forgotten(), "nobody keeps a waiter that was told");
    }
    check(shared->map.waiting() == 0, "nobody is left waiting");
  });
  return shared;
}

// Two come to wait while the transfer ends.
void end_while_others_come(Scene& run, bool fails) {
  auto shared = begin(run, fails);
  run.thread([shared, fails] { shared->map.end(shared->token, fails); });
  run.thread([shared] { await(*shared, shared->one, Moment::responded); });
  run.thread([shared] { await(*shared, shared->other, Moment::responded); });
}

// The slot serves another transfer meanwhile; who asks for the old one must not wait for that.
void use_again(Scene& run, bool fails) {
  auto shared = begin(run, fails);
  await(*shared, shared->other, Moment::sent);
  run.thread([shared, fails] {
    if (!fails) shared->map.note_sent(shared->token);
    shared->map.end(shared->token, fails);
    const Token first = shared->map.begin();
    const Token second = shared->map.begin();
    check(first != shared->token && second != shared->token && first != second, "a token is given once");
    shared->map.end(first, true);
    shared->map.end(second, true);
  });
  run.thread([shared] { await(*shared, shared->one, Moment::responded); });
}

// One has left; a second one comes, which makes the list long, while the transfer ends.
void leave(Scene& run) {
  auto shared = begin(run, false);
  await(*shared, shared->other, Moment::responded);
  run.thread([shared] { shared->map.end(shared->token, false); });
  run.thread([shared] { await(*shared, shared->one, Moment::responded); });
  run.thread([shared] {
    if (shared->other.leave()) shared->other.leave_told();
  });
}

TEST(ExploreCausality, AWaiterIsToldOnceAndTheTruth) {
  expect_sound({.name = "causality, end and two waiters", .preemptions = 2, .stale_reads = 0},
               [](Scene& run) { end_while_others_come(run, false); });
  expect_sound({.name = "causality, failure and two waiters", .random_schedules = 2'000},
               [](Scene& run) { end_while_others_come(run, true); });
}

TEST(ExploreCausality, ASlotThatIsUsedAgainIsNotMistaken) {
  expect_sound({.name = "causality, used again", .preemptions = 2, .stale_reads = 0},
               [](Scene& run) { use_again(run, false); });
  expect_sound({.name = "causality, failed and used again", .preemptions = 1, .stale_reads = 1},
               [](Scene& run) { use_again(run, true); });
}

TEST(ExploreCausality, WhoLeavesIsNotToldAndOthersAre) {
  expect_sound({.name = "causality, one leaves", .preemptions = 2, .stale_reads = 0}, leave);
  expect_sound({.name = "causality, one leaves", .random_schedules = 2'000}, leave);
}

TEST(ExploreCausality, DefectsAreFound) {
  const Options options{.name = "causality, end and two waiters", .preemptions = 2, .stale_reads = 1};
  const Script script = [](Scene& run) { end_while_others_come(run, false); };
  for (const Fault& fault : {Fault{"map.cc", "Map::end(", Fault::Kind::relax, Operation::exchange},
                             Fault{"map.cc", "Map::link(", Fault::Kind::relax, Operation::compare}}) {
    expect_found(options, fault, script);
  }
  expect_found({.name = "causality, failed and used again", .preemptions = 1, .stale_reads = 1},
               {"map.cc", "Map::end(", Fault::Kind::skip, Operation::store}, [](Scene& run) { use_again(run, true); });
}

}  // namespace
}  // namespace weir::explore
