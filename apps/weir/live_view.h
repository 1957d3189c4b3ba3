// LiveView: a few lines that show how a run goes. On a terminal they are redrawn in place; elsewhere a plain line is
// printed about once a second. One per run; owns the cursor from construction to destruction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/weir/histogram.h"

namespace weir::command {

struct Reading {
  double elapsed_s = 0;
  double total_s = 0;
  std::uint64_t rounds = 0;
  std::uint64_t calls = 0;
  std::uint64_t failures = 0;
  double calls_per_s = 0;  // since the last reading
  double goodput = 0;      // useful bytes / bytes sent, since the start
  std::uint64_t frames_sent_again = 0;
  const Histogram* latency = nullptr;  // since the start, in nanoseconds
};

class LiveView {
 public:
  explicit LiveView(std::string title);
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;
  ~LiveView();

  // How often show() is worth calling.
  double interval_s() const { return on_terminal_ ? 0.1 : 1.0; }
  void show(const Reading& reading);

 private:
  void draw(const Reading& reading);

  bool on_terminal_;
  bool drawn_ = false;
  std::vector<double> rates_;  // the last ones, at most as many as the sparkline is wide
};

// Eighths of a block, scaled to the largest value.
std::string sparkline(const std::vector<double>& values);
// `fraction` (0 to 1) of `width` cells filled.
std::string bar(double fraction, std::size_t width);

}  // namespace weir::command
