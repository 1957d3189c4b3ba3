// Losses, probe timeouts and what refutes them (docs/protocol.md, rules and N-4).
#include "recovery/loss_detector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <vector>

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;

struct Record {
  std::vector<std::uint64_t> acked_numbers, lost_numbers, spurious_numbers;
  void acked(std::uint64_t number, SentPacket&) { acked_numbers.push_back(number); }
  void lost(std::uint64_t number, SentPacket&) { lost_numbers.push_back(number); }
  void spurious(std::uint64_t number, SentPacket&) { spurious_numbers.push_back(number); }
};

using Numbers = std::vector<std::uint64_t>;

class LossDetectorTest : public testing::Test {
 protected:
  void send(int count = 1, SentPacket packet = {.bytes = 1'000, .frames_count = 1}) {
    for (int i = 0; i < count; ++i) detector.on_sent(detector.next_number(), packet, now);
  }
  LossReport ack(std::initializer_list<PacketRange> ranges) {
    record = {};
    const std::vector<PacketRange> list{ranges};
    return detector.on_ack({.largest = list.front().last, .ranges = list}, now, record);
  }
  LossReport timeout() {
    record = {};
    return detector.on_timeout(now, record);
  }

  Random random{1};
  LossDetector detector{{.rtt = {.initial = 5ms, .granularity = 1us}}, random};
  Record record;
  Instant now{1'000'000'000};
};

TEST_F(LossDetectorTest, CountsBytesInFlightUntilTheyAreAcknowledged) {
  send(3);
  send(1, {.bytes = 50, .ack_eliciting = false, .in_flight = false});
  EXPECT_EQ(detector.bytes_in_flight(), 3'000U);
  now = now + 100us;
  const LossReport report = ack({{0, 2}});
  EXPECT_EQ(report.status, AckStatus::ok);
  EXPECT_EQ(report.acked_bytes, 3'000U);
  EXPECT_EQ(report.in_flight_before, 3'000U);
  EXPECT_EQ(record.acked_numbers, (Numbers{2, 1, 0}));
  EXPECT_EQ(detector.bytes_in_flight(), 0U);
  EXPECT_TRUE(detector.deadline().is_never());
  EXPECT_EQ(detector.rtt().smoothed(), 100us);
}

TEST_F(LossDetectorTest, RejectsAnAcknowledgementOfANumberNeverSent) {
  send(3);
  EXPECT_EQ(ack({{0, 3}}).status, AckStatus::never_sent);
  EXPECT_TRUE(record.acked_numbers.empty());
  EXPECT_EQ(detector.bytes_in_flight(), 3'000U);
}

TEST_F(LossDetectorTest, RejectsRangesThatMakeNoSense) {
  send(10);
  EXPECT_EQ(ack({{5, 3}}).status, AckStatus::malformed);
  EXPECT_EQ(ack({{5, 8}, {4, 6}}).status, AckStatus::malformed);
  EXPECT_EQ(ack({{2, 3}, {5, 6}}).status, AckStatus::malformed);
  EXPECT_EQ(detector.on_ack({.largest = 4}, now, record).status, AckStatus::malformed);
  const PacketRange range{0, 3};
  EXPECT_EQ(detector.on_ack({.largest = 4, .ranges = {&range, 1}}, now, record).status, AckStatus::malformed);
  EXPECT_EQ(detector.bytes_in_flight(), 10'000U);
}

TEST_F(LossDetectorTest, DeclaresAPacketLostWhenThreeLaterOnesArrived) {
  send(4);
  now = now + 100us;
  EXPECT_EQ(ack({{1, 2}}).lost_packets, 0U);
  const LossReport report = ack({{1, 3}});
  EXPECT_EQ(record.lost_numbers, Numbers{0});
  EXPECT_EQ(report.lost_packets, 1U);
  EXPECT_EQ(report.lost_bytes, 1'000U);
  EXPECT_EQ(detector.bytes_in_flight(), 0U);
}

TEST_F(LossDetectorTest, DeclaresAPacketLostWhenTimePassedAfterALaterOneArrived) {
  const Instant sent_at = now;
  send(2);
  now = now + 800us;
  EXPECT_EQ(ack({{1, 1}}).lost_packets, 0U);
  EXPECT_EQ(detector.deadline(), sent_at + 900us);
  now = sent_at + 899us;
  EXPECT_EQ(timeout().action, TimeoutAction::none);
  now = sent_at + 900us;
  EXPECT_EQ(timeout().action, TimeoutAction::loss_declared);
  EXPECT_EQ(record.lost_numbers, Numbers{0});
  EXPECT_TRUE(detector.deadline().is_never());
}

TEST_F(LossDetectorTest, RecognisesALossThatWasSpurious) {
  send(4);
  now = now + 100us;
  ack({{1, 3}});
  ASSERT_EQ(record.lost_numbers, Numbers{0});
  const LossReport report = ack({{0, 3}});
  EXPECT_EQ(report.spurious_packets, 1U);
  EXPECT_EQ(record.spurious_numbers, Numbers{0});
  EXPECT_TRUE(record.acked_numbers.empty());
  EXPECT_EQ(report.acked_bytes, 0U);
  EXPECT_EQ(ack({{0, 3}}).spurious_packets, 0U);
}

// Who always says that it has waited for as long as anybody may hides no queue behind that.
TEST_F(LossDetectorTest, BelievesNoLongerDelayThanARoundTripAllows) {
  const auto prompt_rtt = [&](Duration took, Duration claimed) {
    const std::uint64_t number = detector.next_number();
    send();
    now = now + took;
    const PacketRange range{number, number};
    const LossReport report =
        detector.on_ack({.largest = number, .delay = claimed, .ranges = {&range, 1}}, now, record);
    EXPECT_TRUE(report.rtt_sampled);
    return report.prompt_rtt;
  };
  EXPECT_EQ(prompt_rtt(100us, 30us), 70us) << "no longer than a short wait";
  for (int i = 0; i < 20; ++i) static_cast<void>(prompt_rtt(100us, 1ms));
  EXPECT_EQ(prompt_rtt(100us, 1ms), 50us) << "the shortest wait for others is 50 us";
  const Duration queue = prompt_rtt(1'100us, 1ms);
  EXPECT_GE(queue, 950us) << "most of a queue of 1 ms shows";
  for (int i = 0; i < 50; ++i) static_cast<void>(prompt_rtt(8ms, 1ms));
  EXPECT_EQ(prompt_rtt(8ms, 1ms), 7ms) << "on a long way";
}

TEST_F(LossDetectorTest, ProbesWithDoublingWaitsAndDeclaresNothingLost) {
  send();
  Duration previous{};
  for (std::uint32_t i = 1; i <= 5; ++i) {
    const Instant before = now;
    now = detector.deadline();
    const Duration wait = now - before;
    EXPECT_GE(wait, detector.pto() * (1 << (i - 1)));
    EXPECT_LE(wait, detector.pto() * (1 << (i - 1)) * 9 / 8);
    EXPECT_GT(wait, previous);
    previous = wait;
    EXPECT_EQ(timeout().action, TimeoutAction::probe);
    EXPECT_TRUE(record.lost_numbers.empty());
    EXPECT_EQ(detector.pto_count(), i);
    EXPECT_GT(detector.deadline(), now) << "waiting must not spin even if nothing was sent";
  }
  send();
  ack({{1, 1}});
  EXPECT_EQ(detector.pto_count(), 0u) << "something new was acknowledged";
  send();
  EXPECT_LE(detector.deadline() - now, detector.pto() * 9 / 8);
}

// A path that loses nothing and falls silent: most likely the peer's process does not run.
TEST_F(LossDetectorTest, ProbesOnceInAStandstillOfAPathThatLosesNothing) {
  send();
  now = now + 50us;
  ack({{0, 0}});
  send();
  const Instant sent_at = now;
  now = detector.deadline();
  EXPECT_LE(now - sent_at, detector.pto() * 9 / 8);
  ASSERT_EQ(timeout().action, TimeoutAction::probe);
  EXPECT_GE(detector.deadline() - sent_at, 50ms);
  now = detector.deadline();
  ASSERT_EQ(timeout().action, TimeoutAction::probe);
  EXPECT_GE(detector.deadline() - now, 50ms);
  // The peer runs again.
  const LossReport report = ack({{0, 1}});
  EXPECT_EQ(report.needless_probes, 2U);
  EXPECT_EQ(detector.pto_count(), 0U);
}

TEST_F(LossDetectorTest, ProbesAtDoublingIntervalsOnAPathThatHasLostSomething) {
  send(5);
  now = now + 50us;
  ASSERT_EQ(ack({{1, 4}}).lost_packets, 1U);
  const auto second_wait = [&] {
    send();
    now = detector.deadline();
    timeout();
    return detector.deadline() - now;
  };
  EXPECT_LE(second_wait(), 2 * detector.pto() * 9 / 8);
  ack({{1, 5}});
  now = now + LossDetector::kLossMemory;
  EXPECT_GE(second_wait(), 50ms);
}

// A receiver without room acknowledges the probe, and not what it refuses.
TEST_F(LossDetectorTest, DoesNotStartOverWhenOnlyAProbeWithoutFramesIsAcknowledged) {
  send();
  now = now + 50us;
  ack({{0, 0}});
  send();
  now = detector.deadline();
  timeout();
  send(1, {.bytes = 30});
  now = now + 50us;
  const LossReport report = ack({{2, 2}, {0, 0}});
  EXPECT_EQ(record.lost_numbers, Numbers{1});
  EXPECT_EQ(report.needless_probes, 0U);
  EXPECT_EQ(detector.pto_count(), 1U);
  send();
  const Instant sent_at = now;
  EXPECT_GE(detector.deadline() - sent_at, 2 * detector.pto());
  now = now + 50us;
  ack({{2, 3}, {0, 0}});
  EXPECT_EQ(detector.pto_count(), 0U);
}

TEST_F(LossDetectorTest, GivesEachPacketsFramesToOneRepetition) {
  send(1, {.bytes = 30});
  send(2);
  const SentPacket* const first = detector.take_for_repetition();
  ASSERT_EQ(first, &detector.sent()[1]) << "the oldest one that has frames";
  EXPECT_EQ(detector.take_for_repetition(), &detector.sent()[2]);
  EXPECT_EQ(detector.take_for_repetition(), nullptr);
}

// ---- packets that overtake each other ----

TEST_F(LossDetectorTest, GoesByTimeAloneOncePacketsHaveBeenOvertaken) {
  send(20);
  now = now + 100us;
  ASSERT_EQ(ack({{10, 10}}).lost_packets, 8U) << "0 to 7";
  const LossReport report = ack({{0, 10}});
  EXPECT_EQ(report.spurious_packets, 8U);
  EXPECT_EQ(ack({{19, 19}, {0, 10}}).lost_packets, 0U) << "8 packets behind show nothing any more";
  now = detector.deadline();
  timeout();
  EXPECT_EQ(record.lost_numbers, (Numbers{11, 12, 13, 14, 15, 16, 17, 18}));
}

TEST_F(LossDetectorTest, LearnsFromPacketsThatWereOvertakenAndNotDeclaredLost) {
  send();
  now = now + 1ms;
  ack({{0, 0}});
  send(2);
  const Instant sent_at = now;
  now = sent_at + 1ms;
  ASSERT_EQ(ack({{2, 2}, {0, 0}}).lost_packets, 0U);
  now = sent_at + 1'100us;
  ASSERT_EQ(ack({{0, 2}}).spurious_packets, 0U);
  EXPECT_GT(detector.reordering().delay(), 1'100us * 6 / 5);
  // The next one may take as long, and a little longer.
  send(2);
  const Instant again_at = now;
  now = again_at + 1ms;
  ack({{4, 4}, {0, 2}});
  EXPECT_GT(detector.deadline() - again_at, 1'100us * 6 / 5);
}

TEST_F(LossDetectorTest, WaitsNoLongerThanTwoProbeTimeoutsForWhatIsOvertaken) {
  send();
  now = now + 100us;
  ack({{0, 0}});
  send(2);
  now = now + 100us;
  ack({{2, 2}, {0, 0}});
  now = now + 1s;
  ack({{0, 2}});
  send(2);
  const Instant sent_at = now;
  now = now + 100us;
  ack({{4, 4}, {0, 2}});
  EXPECT_LE(detector.deadline() - sent_at, 2 * detector.pto());
}

TEST_F(LossDetectorTest, LearnsNothingAndDeclaresNothingLostByTimeFromWhatWaitedInTheSocket) {
  send();
  now = now + 100us;
  ack({{0, 0}});
  send(3);
  const Duration pto = detector.pto();
  now = now + 50ms;  // this side did not run
  const PacketRange first[] = {{3, 3}, {0, 0}};
  record = {};
  LossReport report = detector.on_ack({.largest = 3, .ranges = first, .is_stale = true}, now, record);
  EXPECT_EQ(report.lost_packets, 0U);
  EXPECT_FALSE(report.rtt_sampled);
  EXPECT_EQ(detector.pto(), pto);
  EXPECT_LE(detector.deadline(), now) << "the timer looks when all that waited has been read";
  const PacketRange all{0, 3};
  report = detector.on_ack({.largest = 3, .ranges = {&all, 1}, .is_stale = true}, now, record);
  EXPECT_EQ(report.acked_packets, 2U);
  EXPECT_TRUE(record.lost_numbers.empty());
  EXPECT_TRUE(detector.deadline().is_never());
  EXPECT_FALSE(detector.reordering().is_known());
}

TEST_F(LossDetectorTest, CapsTheBackoff) {
  send();
  for (int i = 0; i < 100; ++i) {
    now = detector.deadline();
    timeout();
  }
  EXPECT_LE(detector.deadline() - now, Duration{1s} * 9 / 8);
}

TEST_F(LossDetectorTest, SpreadsProbesByJitter) {
  std::vector<std::int64_t> waits;
  for (int i = 0; i < 20; ++i) {
    LossDetector other{random};
    other.on_sent(0, {.bytes = 100}, now);
    waits.push_back(other.deadline().ns);
  }
  std::sort(waits.begin(), waits.end());
  EXPECT_GT(std::unique(waits.begin(), waits.end()) - waits.begin(), 10);
}

TEST_F(LossDetectorTest, DoesNotProbeForPacketsThatElicitNothing) {
  send(3, {.bytes = 50, .ack_eliciting = false, .in_flight = false});
  EXPECT_TRUE(detector.deadline().is_never());
  EXPECT_EQ(detector.oldest_outstanding(), nullptr);
}

TEST_F(LossDetectorTest, NamesTheOldestPacketThatAProbeShouldRepeat) {
  send(1, {.bytes = 50, .ack_eliciting = false, .in_flight = false});
  send(2);
  std::uint64_t number = 0;
  ASSERT_NE(detector.oldest_outstanding(&number), nullptr);
  EXPECT_EQ(number, 1U);
}

TEST_F(LossDetectorTest, DoesNotFillItsRecordWithAcknowledgementsThatNobodyAcknowledges) {
  for (int i = 0; i < 100'000; ++i) send(1, {.bytes = 50, .ack_eliciting = false, .in_flight = false});
  EXPECT_LE(detector.sent().capacity(), 2 * LossDetector::kMaxRetained);
  EXPECT_FALSE(detector.full());
  send();
  now = now + 100us;
  EXPECT_EQ(ack({{0, 100'000}}).status, AckStatus::ok);
  EXPECT_EQ(detector.bytes_in_flight(), 0U);
}

TEST_F(LossDetectorTest, SaysThatItIsFullAtItsBound) {
  LossDetector small{{.sent_packets_bound = 64}, random};
  std::uint64_t sent = 0;
  while (!small.full()) small.on_sent(sent++, {.bytes = 1}, now);
  EXPECT_EQ(sent, 64U);
  const PacketRange range{0, 63};
  small.on_ack({.largest = 63, .ranges = {&range, 1}}, now, record);
  EXPECT_FALSE(small.full());
}

TEST_F(LossDetectorTest, SignalsPersistentCongestionWhenALongSpanWasLost) {
  send();
  now = now + 1ms;
  ack({{0, 0}});
  const Duration span = 3 * detector.pto() + 1ms;
  send();
  now = now + span;
  send(4);
  now = now + 1ms;
  EXPECT_TRUE(ack({{5, 5}}).persistent_congestion);
  EXPECT_EQ(record.lost_numbers, (Numbers{1, 2}));
}

TEST_F(LossDetectorTest, AnAcknowledgedPacketInBetweenRefutesPersistentCongestion) {
  send();
  now = now + 1ms;
  ack({{0, 0}});
  const Duration span = 3 * detector.pto() + 1ms;
  send(2);
  now = now + span;
  send(5);
  now = now + 1ms;
  const LossReport report = ack({{7, 7}, {2, 2}});
  EXPECT_GE(report.lost_packets, 2U);
  EXPECT_FALSE(report.persistent_congestion);
}

TEST_F(LossDetectorTest, DoesNotCountALostMtuProbeAsCongestion) {
  send(1, {.bytes = 9'000, .mtu_probe = true});
  send(3);
  now = now + 100us;
  const LossReport report = ack({{1, 3}});
  EXPECT_EQ(record.lost_numbers, Numbers{0});
  EXPECT_EQ(report.lost_packets, 0U);
  EXPECT_EQ(report.lost_bytes, 0U);
  EXPECT_EQ(detector.bytes_in_flight(), 0U);
}

TEST_F(LossDetectorTest, CountsMarkedPacketsForEcnValidation) {
  send(2, {.bytes = 100, .ecn = EcnMark::ect0});
  send(1);
  now = now + 10us;
  const LossReport report = ack({{0, 2}});
  EXPECT_EQ(report.acked_ect0, 2U);
  EXPECT_TRUE(report.largest_advanced);
  EXPECT_FALSE(ack({{0, 2}}).largest_advanced);
}

TEST_F(LossDetectorTest, BelievesNoMoreAckDelayThanThePeerPromised) {
  send();
  now = now + 1ms;
  ack({{0, 0}});
  send();
  now = now + 10ms;
  const PacketRange range{0, 1};
  detector.on_ack({.largest = 1, .delay = 9ms, .ranges = {&range, 1}}, now, record);
  EXPECT_EQ(detector.rtt().smoothed(), (7 * Duration{1ms} + Duration{9ms}) / 8);
}

TEST_F(LossDetectorTest, AbandonsEverythingOutstanding) {
  send(5);
  detector.abandon(record);
  EXPECT_EQ(record.lost_numbers, (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(detector.bytes_in_flight(), 0U);
  EXPECT_TRUE(detector.deadline().is_never());
  detector.release_memory();
  detector.on_sent(1'000, {.bytes = 1}, now);
  EXPECT_EQ(detector.next_number(), 1'001U);
}

// A path that loses, delays and repeats, with a receiver that reports what it has, against a model of every packet.
TEST(LossDetector, AgreesWithAModelOverALossyPath) {
  enum class State : std::uint8_t { outstanding, acked, lost, spurious };
  struct Model {
    std::map<std::uint64_t, State> state;
    std::map<std::uint64_t, std::uint32_t> in_flight;  // bytes
    void acked(std::uint64_t number, SentPacket&) {
      ASSERT_EQ(state[number], State::outstanding);
      state[number] = State::acked;
      in_flight.erase(number);
    }
    void lost(std::uint64_t number, SentPacket& packet) {
      ASSERT_TRUE(packet.in_flight);
      ASSERT_EQ(state[number], State::outstanding);
      state[number] = State::lost;
      in_flight.erase(number);
    }
    void spurious(std::uint64_t number, SentPacket&) {
      ASSERT_EQ(state[number], State::lost);
      state[number] = State::spurious;
    }
  };
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    LossDetector detector{{.sent_packets_bound = 1'024}, random};
    Model model;
    AckRanges received;
    std::multimap<std::int64_t, std::uint64_t> on_the_way;                  // packets, by arrival
    std::multimap<std::int64_t, std::vector<PacketRange>> acks_on_the_way;  // by arrival
    const double loss = 0.3 * random.fraction();
    const auto delay = [&] {
      return std::int64_t{20'000} + static_cast<std::int64_t>(random.below(random.chance(0.1) ? 400'000 : 5'000));
    };
    Instant now{};
    for (int step = 0; step < 6'000; ++step) {
      const bool sending = step < 5'000;
      now = now + Duration{static_cast<std::int64_t>(random.below(10'000))};
      if (!sending) now = std::max(now, earliest(detector.deadline(), now + 1ms));
      if (sending && !detector.full() && detector.bytes_in_flight() < 200'000) {
        const std::uint64_t number = detector.next_number();
        const bool eliciting = !random.chance(0.2);
        const auto bytes = static_cast<std::uint32_t>(50 + random.below(1'400));
        detector.on_sent(number, {.bytes = bytes, .ack_eliciting = eliciting, .in_flight = eliciting}, now);
        model.state[number] = State::outstanding;
        if (eliciting) model.in_flight[number] = bytes;
        if (!random.chance(loss)) on_the_way.emplace(now.ns + delay(), number);
      }
      while (!on_the_way.empty() && on_the_way.begin()->first <= now.ns) {
        received.insert(on_the_way.begin()->second);
        on_the_way.erase(on_the_way.begin());
        std::vector<PacketRange> ranges;
        for (std::size_t i = 0; i < received.size() && i < 32; ++i) ranges.push_back(received[i]);
        if (!random.chance(loss)) acks_on_the_way.emplace(now.ns + delay(), ranges);
        if (random.chance(0.1)) acks_on_the_way.emplace(now.ns + 2 * delay(), ranges);
      }
      while (!acks_on_the_way.empty() && acks_on_the_way.begin()->first <= now.ns) {
        const auto ranges = acks_on_the_way.begin()->second;
        const LossReport report = detector.on_ack({.largest = ranges.front().last, .ranges = ranges}, now, model);
        ASSERT_EQ(report.status, AckStatus::ok);
        acks_on_the_way.erase(acks_on_the_way.begin());
        for (const PacketRange& range : ranges) {
          for (std::uint64_t number = std::max(range.first, detector.sent().first()); number <= range.last; ++number) {
            const State state = model.state[number];
            ASSERT_TRUE(state == State::acked || state == State::spurious) << number;
          }
        }
      }
      if (detector.deadline() <= now && detector.on_timeout(now, model).action == TimeoutAction::probe) {
        ASSERT_GT(detector.deadline(), now);
        if (!sending && !detector.full()) {  // a probe that arrives
          const std::uint64_t number = detector.next_number();
          detector.on_sent(number, {.bytes = 40}, now);
          model.state[number] = State::outstanding;
          model.in_flight[number] = 40;
          on_the_way.emplace(now.ns + delay(), number);
        }
      }
      std::uint64_t bytes = 0;
      for (const auto& [number, size] : model.in_flight) bytes += size;
      ASSERT_EQ(detector.bytes_in_flight(), bytes);
      ASSERT_EQ(detector.eliciting_in_flight(), model.in_flight.size());
      ASSERT_EQ(detector.deadline().is_never(), model.in_flight.empty());
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(detector.bytes_in_flight(), 0U);
  }
}

// The work of an acknowledgement is that of the packets it is news about.
TEST(LossDetector, StepsOverWhatItKnowsToBeAcknowledged) {
  Random random{5};
  LossDetector detector{random};
  Record record;
  const Instant now{};
  constexpr std::uint64_t kCount = 200;
  for (std::uint64_t number = 0; number < kCount; ++number) detector.on_sent(number, {.bytes = 1'000}, now);
  for (std::uint64_t last = 1; last < kCount; ++last) {
    const PacketRange range{1, last};
    detector.on_ack({.largest = last, .ranges = {&range, 1}}, now, record);
    const SentPackets& sent = detector.sent();
    ASSERT_EQ(sent[last].acked_below, last - 1);
  }
  EXPECT_EQ(record.acked_numbers.size(), kCount - 1);
  // Wherever a range begins within a run that was acknowledged at once, one step leads out of it.
  for (int i = 0; i < 20; ++i) detector.on_sent(detector.next_number(), {.bytes = 1'000}, now);
  const PacketRange run{kCount + 1, kCount + 19};
  detector.on_ack({.largest = run.last, .ranges = {&run, 1}}, now, record);
  ASSERT_TRUE(detector.sent().contains(run.first));
  for (std::uint64_t number = run.first; number <= run.last; ++number) {
    EXPECT_EQ(detector.sent()[number].acked_below, number - run.first);
  }
  EXPECT_EQ(record.lost_numbers, (Numbers{0, kCount}));
}

}  // namespace
}  // namespace weir::recovery
