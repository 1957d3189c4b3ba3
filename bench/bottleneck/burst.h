// What the programs of this folder share: options, and how bench/bottleneck speaks with the programs that it starts.
//
// A program says `{"ready":true}` when it can be used. Then each line on its standard input asks for something, and one
// JSON object in one line is the answer:
//
//   round     a client makes all its calls at once (--window) and waits for all of them
//   counters  what the program counted since it started
//
// The end of the input ends the program, so that no program outlives whoever started it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../peers/harness.h"

namespace weir::bench {

// The options of both roles. Besides those of the harness: --peers N, how many servers there are or are called, each at
// the port after the last one's; --deadline S, of each call.
struct Burst {
  // `extra` names the options that this program understands besides.
  Burst(int argument_count, char** arguments, std::vector<std::string> extra);

  std::string address_of(unsigned peer) const;
  std::chrono::nanoseconds deadline() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  }

  Options options;
  unsigned peers;
  double seconds;  // until a call has failed
};

// What happened in one round of calls.
struct Round {
  std::uint64_t begin_ns = 0, end_ns = 0;  // CLOCK_MONOTONIC: rounds of several processes can be put side by side
  std::uint64_t completed = 0, failed = 0;
  std::string first_failure;

  void count_success() { ++completed; }
  void count_failure(const std::string& sentence) {
    if (++failed == 1) first_failure = sentence;
  }
};

using TellCounters = std::function<std::string()>;  // as a JSON object

std::string no_counters();

// Both return when the input ends.
void answer_as_server(const TellCounters& counters = no_counters);
// `turn` is called over and over while nothing is asked for; without one the program sleeps meanwhile.
void answer_as_client(const std::function<Round()>& make_round, const TellCounters& counters = no_counters,
                      const std::function<void()>& turn = {});

}  // namespace weir::bench
