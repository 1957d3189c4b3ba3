#include "report.h"

#include <fmt/format.h>

#include <iterator>

#ifndef WEIR_NS3_VERSION
#define WEIR_NS3_VERSION "unknown"
#endif

namespace weir::bench {
namespace {

std::string line(std::string_view name, std::string_view which, const RoundResult& round) {
  std::string text =
      fmt::format("  {:<9} {:<6} {:>10.3f} ms {:>8.2f} {:>8.2f} {:>9} {:>7.2f} % {:>7.2f} % {:>8.3f} {:>9.1f} {:>9.1f}",
                  name, which, 1e3 * round.seconds, round.over_bound, round.most_over_bound, round.dropped,
                  100 * round.dropped_share, 100 * round.retransmitted_share, round.goodput,
                  round.queue_p99_bytes / 1024.0, round.queue_longest_bytes / 1024.0);
  if (round.failed != 0) text += fmt::format("  {} calls failed ({})", round.failed, round.first_failure);
  if (round.dropped_elsewhere != 0) text += fmt::format("  {} dropped elsewhere", round.dropped_elsewhere);
  return text + "\n";
}

std::string json_of(const RoundResult& round) {
  return fmt::format(
      R"({{"seconds": {}, "over_bound": {}, "most_over_bound": {}, "completed": {}, "failed": {}, "first_failure": "{}", "dropped": {}, "dropped_share": {}, )"
      R"("dropped_elsewhere": {}, "marked": {}, "marks_received": {}, "packets": {}, "ip_bytes": {}, "retransmitted_bytes": {}, )"
      R"("retransmitted_share": {}, "goodput": {}, "queue_p99_bytes": {}, "queue_longest_bytes": {}}})",
      round.seconds, round.over_bound, round.most_over_bound, round.completed, round.failed, round.first_failure,
      round.dropped, round.dropped_share, round.dropped_elsewhere, round.marked, round.marks_received, round.packets,
      round.ip_bytes, round.retransmitted_bytes, round.retransmitted_share, round.goodput, round.queue_p99_bytes,
      round.queue_longest_bytes);
}

}  // namespace

std::string table_heading() {
  return fmt::format("  {:<9} {:<6} {:>13} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}\n", "", "round", "time",
                     "/bound", "99 %", "dropped", "", "again", "goodput", "p99 KiB", "max KiB");
}

std::string table_lines(const RowResult& row) {
  std::string text = line(row.contestant, "first", row.rounds.front());
  if (row.rounds.size() > 1) text += line("", "median", row.median());
  return text;
}

std::string to_json(const RunOptions& options, const std::vector<RowResult>& rows) {
  std::string text = fmt::format(
      R"({{"ns3": "{}", "seed": {}, "quick": {}, "tcp_least_timeout_ms": {}, "receive_buffer_bytes": {}, "rows": [)",
      WEIR_NS3_VERSION, options.seed, options.is_quick, static_cast<double>(options.tcp_least_timeout.count()) / 1e6,
      options.receive_buffer_bytes);
  const char* separator = "\n";
  for (const RowResult& row : rows) {
    text += fmt::format(
        R"({}  {{"scenario": "{}", "contestant": "{}", "hosts": {}, "calls": {}, "bound_s": {}, "rounds": [)",
        separator, row.scenario, row.contestant, row.hosts, row.calls, row.bound_s);
    separator = ",\n";
    const char* between = "";
    for (const RoundResult& round : row.rounds) {
      fmt::format_to(std::back_inserter(text), "{}\n    {}", between, json_of(round));
      between = ",";
    }
    text += "]}";
  }
  return text + "]}\n";
}

}  // namespace weir::bench
