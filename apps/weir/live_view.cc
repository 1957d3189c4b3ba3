#include "apps/weir/live_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/weir/format.h"
#include "apps/weir/process.h"

namespace weir::command {

namespace {

// No line is wider than 80 columns: a wrapped one could not be redrawn in its place.
constexpr std::size_t kSparklineWidth = 40;
constexpr std::size_t kBarWidth = 24;
constexpr int kLines = 6;
constexpr int kColumns = 80;

std::string time_of(const Reading& reading, double fraction) { return time_at(*reading.latency, fraction); }

}  // namespace

std::string sparkline(const std::vector<double>& values) {
  static constexpr const char* kEighths[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double largest = values.empty() ? 0 : *std::ranges::max_element(values);
  std::string out;
  for (double value : values) {
    double height = largest > 0 ? std::clamp(value / largest, 0.0, 1.0) : 0;
    out += kEighths[static_cast<std::size_t>(std::lround(height * 7))];
  }
  return out;
}

std::string bar(double fraction, std::size_t width) {
  auto filled = static_cast<std::size_t>(std::lround(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(width)));
  std::string out;
  for (std::size_t i = 0; i < width; ++i) out += i < filled ? "█" : "░";
  return out;
}

LiveView::LiveView(std::string title) : on_terminal_(can_redraw(STDOUT_FILENO, kColumns)) {
  fmt::print("{}\n", title);
  if (on_terminal_) fmt::print("\n\x1b[?25l");  // hides the cursor
  std::fflush(stdout);
}

LiveView::~LiveView() {
  if (on_terminal_) fmt::print("\x1b[?25h");
  std::fflush(stdout);
}

void LiveView::show(const Reading& reading) {
  if (on_terminal_) {
    draw(reading);
  } else {
    fmt::print("{:>5.1f} s  {:>8} calls/s  p50 {}  p99 {}  goodput {:.3f}  sent again {}  failed {}\n",
               reading.elapsed_s, in_rate(reading.calls_per_s), time_of(reading, 0.5), time_of(reading, 0.99),
               reading.goodput, with_commas(reading.frames_sent_again), with_commas(reading.failures));
  }
  std::fflush(stdout);
}

void LiveView::draw(const Reading& reading) {
  if (rates_.size() == kSparklineWidth) rates_.erase(rates_.begin());
  rates_.push_back(reading.calls_per_s);

  if (drawn_) fmt::print("\x1b[{}A", kLines);
  drawn_ = true;
  auto line = [](const char* what, const std::string& text) { fmt::print("\r\x1b[2K  {:<10} {}\n", what, text); };
  line("rate", fmt::format("\x1b[1m{:>16}\x1b[0m  \x1b[36m{}\x1b[0m", in_rate(reading.calls_per_s) + " calls/s",
                           sparkline(rates_)));
  line("latency", fmt::format("p50 {}   p90 {}   p99 {}   p99.9 {}", time_of(reading, 0.5), time_of(reading, 0.9),
                              time_of(reading, 0.99), time_of(reading, 0.999)));
  line("goodput", fmt::format("{:>16.3f}  \x1b[32m{}\x1b[0m  useful / sent bytes", reading.goodput,
                              bar(reading.goodput, kBarWidth)));
  line("sent again", counted(reading.frames_sent_again, "frame"));
  line("calls", fmt::format("{} in {}, {} failed", with_commas(reading.calls), counted(reading.rounds, "round"),
                            with_commas(reading.failures)));
  line("time", fmt::format("{:>16}  {}", fmt::format("{:.1f} of {:.0f} s", reading.elapsed_s, reading.total_s),
                           bar(reading.elapsed_s / reading.total_s, kBarWidth)));
}

}  // namespace weir::command
