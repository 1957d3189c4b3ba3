// PerfMeter: what one run of `weir perf client` has measured so far. One per run, used by the thread on which calls
// complete.
//
// Reading the clock for every call would cost as much as part of the call itself, so only one call in `sample_every`
// (on average, at random distances, so that no rhythm of the protocol hides) is timed. With one call outstanding, all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "apps/weir/histogram.h"
#include "apps/weir/process.h"
#include "weir/error.h"
#include "weir/event.h"

namespace weir::command {

struct PerfClientOptions;

class PerfMeter {
 public:
  explicit PerfMeter(std::uint32_t sample_every) : sample_every_(sample_every) {}

  // The time at which a call starts, or 0 if this one is not timed.
  std::int64_t stamp() {
    if (--until_sample_ != 0) return 0;
    until_sample_ = next_distance();
    return now_ns();
  }
  void count_success() { ++calls_; }
  void count_latency(std::int64_t nanoseconds) { interval_.record(static_cast<std::uint64_t>(nanoseconds)); }
  void count_failure(const Error& error) {
    ++errors_;
    if (!first_error_) first_error_ = error;
  }

  // The measurement starts here; what came before was warming up. Failures are not forgotten.
  void begin(std::int64_t now, const Counters& counters);
  // A line about the time since the last one.
  std::string close_interval(std::int64_t now, const Counters& counters, std::uint64_t payload_per_call);
  void end(std::int64_t now, const Counters& counters, bool is_interrupted);

  static std::string interval_heading(std::string_view many);
  std::string summary(const PerfClientOptions& options) const;
  // One line for each run of a sweep.
  static std::string sweep_heading(std::string_view many);
  std::string sweep_line(const PerfClientOptions& options) const;
  std::string json(const PerfClientOptions& options, std::uint32_t datagram_bytes) const;

  std::int64_t interval_began_ns() const { return interval_began_ns_; }
  std::uint64_t calls() const { return calls_; }
  bool is_interrupted() const { return is_interrupted_; }
  double seconds() const { return static_cast<double>(ended_ns_ - began_ns_) * 1e-9; }
  std::uint64_t errors() const { return errors_; }
  const std::optional<Error>& first_error() const { return first_error_; }

 private:
  // Uniform in 1 .. 2 * sample_every - 1.
  std::uint32_t next_distance() {
    dice_ = dice_ * 6364136223846793005u + 1442695040888963407u;
    return 1 + static_cast<std::uint32_t>(dice_ >> 33) % (2 * sample_every_ - 1);
  }

  std::uint32_t sample_every_;
  std::uint32_t until_sample_ = 1;
  std::uint64_t dice_ = 1;

  std::uint64_t calls_ = 0;
  std::uint64_t errors_ = 0;
  std::optional<Error> first_error_;
  Histogram interval_;  // since the last line
  Histogram total_;     // before that

  std::int64_t began_ns_ = 0;
  std::int64_t ended_ns_ = 0;
  bool is_interrupted_ = false;  // by the user, before what was asked for was measured
  double cpu_began_s_ = 0;
  double cpu_s_ = 0;
  Counters began_;
  Counters ended_;

  std::int64_t interval_began_ns_ = 0;
  std::uint64_t interval_began_calls_ = 0;
  Counters interval_counters_;
};

}  // namespace weir::command
