#include "sim/fabric_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "sim/svg_chart.h"

namespace weir::sim {
namespace {

constexpr std::array kColours = {"#2563c9", "#d9690d", "#15803d", "#9333a8", "#6b7280"};
constexpr double kKib = 1'024;

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Weir in a simulated fabric</title>
<style>
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 1180px; padding: 24px 28px 48px; background: #ffffff; color: #1f2328;
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 20px; margin: 40px 0 6px; padding-top: 18px; border-top: 1px solid #d8dce1; }
h3 { font-size: 15px; margin: 22px 0 6px; }
p { margin: 6px 0 12px; max-width: 90ch; }
.soft { color: #59636e; }
.figures { display: flex; flex-wrap: wrap; gap: 10px; margin: 14px 0; }
.figure { border: 1px solid #d8dce1; border-radius: 8px; padding: 8px 14px; min-width: 128px; }
.figure b { display: block; font-size: 20px; }
.figure span { color: #59636e; font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 16px; margin: 16px 0; }
.charts svg { width: 100%; height: auto; border: 1px solid #d8dce1; border-radius: 8px; background: #ffffff; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 5px 14px 5px 0; text-align: right; border-bottom: 1px solid #e6e8eb; white-space: nowrap; }
th { color: #59636e; font-weight: 500; }
th:first-child, td:first-child { text-align: left; }
.goals th, .goals td { text-align: left; }
.met { color: #15703a; font-weight: 600; }
.missed { color: #b3261e; font-weight: 600; }
</style>
</head>
<body>
)";

// "1,234,567"
std::string grouped(std::uint64_t value) {
  const std::string digits = fmt::format("{}", value);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }
double us(double ns) { return ns * 1e-3; }
double us(Duration d) { return us(static_cast<double>(d.count())); }
// Runs of more than some milliseconds are told in these.
struct TimeUnit {
  const char* name;
  double ns;
  double count(Duration d) const { return static_cast<double>(d.count()) / ns; }
};

TimeUnit unit_of(const FabricReport& report) {
  constexpr Duration kShort{5'000'000};
  return report.took <= kShort ? TimeUnit{"us", 1e3} : TimeUnit{"ms", 1e6};
}

double gbit(std::uint64_t bits_per_second) { return static_cast<double>(bits_per_second) * 1e-9; }

class Page {
 public:
  std::string make(std::span<const FabricReport> reports) {
    out_ += kHead;
    add("<h1>Weir in a simulated fabric</h1>\n");
    add("<p>Each section is one run of the production engine, one engine for each host, in a simulated network of leaf "
        "and "
        "spine switches. Time is virtual, and the seed decides everything, so the same command gives the same figures "
        "on "
        "every machine. Packets are sealed and opened with AES-128-GCM. Payloads of all hosts share memory; bodies of "
        "large "
        "messages are not read by their receivers.</p>\n");
    for (const FabricReport& report : reports) section(report);
    add("</body>\n</html>\n");
    return std::move(out_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void section(const FabricReport& report) {
    add("<h2>{}, seed {}</h2>\n", escape_html(report.name), report.shape.seed);
    introduce(report);
    figures(report);
    goals(report);
    add("<div class=\"charts\">\n");
    for (const auto& chart : {&Page::longest_chart, &Page::mean_chart, &Page::rate_chart, &Page::progress_chart,
                              &Page::time_chart, &Page::signal_chart}) {
      out_ += chart(report).draw();
    }
    add("</div>\n");
    calls(report);
    queues(report);
    packets(report);
  }

  void introduce(const FabricReport& report) {
    const FabricShape& shape = report.shape;
    const std::string shared =
        shape.shared_part == 0
            ? ""
            : fmt::format(", shared by the ports of a switch: one takes at most {:g} times what is free",
                          shape.shared_part);
    const std::string cap =
        shape.flow_bits_per_second == 0
            ? ""
            : fmt::format(" One host may send {:g} Gbit/s to one other.", gbit(shape.flow_bits_per_second));
    const std::string loss =
        shape.loss == 0 ? "No packet is lost at random." : percent(shape.loss) + " of packets are lost at random.";
    add("<p>{} The network has {} hosts, {} leaf switches with up to {} hosts each, and {} spines. Every cable carries "
        "{:g} Gbit/s and adds {:g} us; the MTU is {} bytes. A switch has {} KiB of buffer for each port{}, and marks "
        "packets that find more than {} KiB waiting. Flows are spread over the spines by a hash of their two hosts. "
        "{}{} Paths {}. Hosts {} what their interface carries. The seed is {}.</p>\n",
        escape_html(report.description), shape.hosts, shape.leaves(), shape.hosts_per_leaf, shape.spines,
        gbit(shape.bits_per_second), us(shape.latency), shape.mtu, shape.buffer_bytes / 1'024, shared,
        shape.ecn_threshold_bytes / 1'024, loss, cap,
        report.is_cold ? "are made by the first calls" : "were made before the start",
        shape.tells_rate ? "know" : "do not know", shape.seed);
    add("<p class=\"soft\">The ideal is the time that the busiest cable ({}) needs for what it must carry at least, in "
        "full packets, and one round trip of {:.1f} us.</p>\n",
        name_of(report.busiest), us(report.round_trip));
  }

  void figure(const std::string& value, const char* what) {
    add("<div class=\"figure\"><b>{}</b><span>{}</span></div>\n", value, what);
  }

  void figures(const FabricReport& report) {
    add("<div class=\"figures\">\n");
    figure(fmt::format("{:.3f} ms", us(report.took) * 1e-3), "to the last answer");
    figure(fmt::format("{:.2f} x", report.completion()), "the ideal");
    figure(percent(report.goodput()), "goodput");
    figure(percent(report.retransmitted_share()), "retransmitted bytes");
    figure(percent(report.control_share()), "control-only bytes");
    figure(grouped(report.counts.tail_drops), "tail drops");
    figure(grouped(report.counts.marked), "ECN marks");
    add("</div>\n");
  }

  void goals(const FabricReport& report) {
    add("<h3>Goals</h3>\n<div class=\"wide\"><table "
        "class=\"goals\"><tr><th>goal</th><th>wanted</th><th>measured</th><th></th>"
        "</tr>\n");
    for (const FabricGoal& goal : report.goals) {
      add("<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td></tr>\n", escape_html(goal.name),
          escape_html(goal.wanted), escape_html(goal.measured), goal.is_met ? "met" : "missed",
          goal.is_met ? "met" : "missed");
    }
    add("</table></div>\n");
  }

  // The middles of a series' spans, with a value of each.
  template <class Value>
  static SvgSeries series_of(const FabricReport& report, const TimeSeries& spans, std::string name, const char* colour,
                             Value value) {
    SvgSeries series{.name = std::move(name), .colour = colour};
    const double width = unit_of(report).count(spans.width());
    for (std::size_t i = 0; i < spans.spans().size(); ++i) {
      series.points.emplace_back(width * (static_cast<double>(i) + 0.5), value(spans.spans()[i]));
    }
    return series;
  }

  static SvgChart over_time(const FabricReport& report, std::string title, std::string y_label) {
    const TimeUnit unit = unit_of(report);
    return {.title = std::move(title),
            .x_label = fmt::format("time ({})", unit.name),
            .y_label = std::move(y_label),
            .most_x = unit.count(report.took)};
  }

  template <class Value>
  static SvgChart queue_chart(const FabricReport& report, std::string title, Value value) {
    SvgChart chart = over_time(report, std::move(title), "queue (KiB)");
    for (std::size_t i = 0; i < kPortKinds; ++i) {
      if (report.queues[i].packets == 0) continue;
      chart.series.push_back(series_of(report, report.depths[i], std::string(name_of(static_cast<PortKind>(i))),
                                       kColours[i], [&](const auto& span) { return value(span) / kKib; }));
    }
    if (report.shape.ecn_threshold_bytes != 0) {
      chart.marks.push_back({.name = "ECN threshold", .at = report.shape.ecn_threshold_bytes / kKib});
    }
    return chart;
  }

  static SvgChart longest_chart(const FabricReport& report) {
    SvgChart chart = queue_chart(report, "Longest queue of any port",
                                 [](const auto& span) { return static_cast<double>(span.largest); });
    if (report.shape.shared_part == 0) {
      chart.marks.push_back({.name = "buffer of a port", .at = report.shape.buffer_bytes / kKib});
    }
    return chart;
  }

  static SvgChart mean_chart(const FabricReport& report) {
    return queue_chart(report, "Queue that packets find, on average", [](const auto& span) { return span.mean(); });
  }

  static SvgChart rate_chart(const FabricReport& report) {
    SvgChart chart = over_time(report, "What all hosts together receive", "Gbit/s of IP packets");
    const auto width = static_cast<double>(report.delivered.width().count());
    chart.series.push_back(series_of(report, report.delivered, "IP packets", kColours[0],
                                     [&](const auto& span) { return 8 * static_cast<double>(span.sum) / width; }));
    if (report.ideal.count() != 0) {
      chart.marks.push_back(
          {.name = "payload at the ideal",
           .at = 8 * static_cast<double>(report.payload_bytes) / static_cast<double>(report.ideal.count())});
    }
    return chart;
  }

  static SvgChart progress_chart(const FabricReport& report) {
    SvgChart chart = over_time(report, "Goodput: payload of messages that are there whole", "share of all payload (%)");
    chart.most_y = 100;
    double planned = 0;
    for (const FabricReport::Kind& kind : report.kinds) {
      planned += static_cast<double>(kind.calls) * (kind.kind.request_bytes + kind.kind.reply_bytes);
    }
    double sum = 0;
    SvgSeries done = series_of(report, report.useful_bytes, "this run", kColours[2], [&](const auto& span) {
      sum += static_cast<double>(span.sum);
      return 100 * sum / std::max(planned, 1.0);
    });
    done.points.insert(done.points.begin(), {0, 0});
    chart.series.push_back(std::move(done));
    chart.series.push_back({.name = "busiest cable always busy",
                            .colour = kColours[4],
                            .points = {{0, 0}, {unit_of(report).count(report.ideal), 100}}});
    return chart;
  }

  static SvgChart time_chart(const FabricReport& report) {
    SvgChart chart{.title = "Completion times of calls",
                   .x_label = "time from start to answer (us)",
                   .y_label = "share of calls (%)",
                   .is_log_x = true,
                   .most_y = 100};
    for (std::size_t i = 0; i < report.kinds.size(); ++i) {
      const FabricReport::Kind& kind = report.kinds[i];
      SvgSeries series{.name = std::string(kind.kind.name), .colour = kColours[i % kColours.size()], .is_step = true};
      for (const auto& [ns, count] : kind.times_ns.cumulative()) {
        if (series.points.empty()) series.points.emplace_back(us(static_cast<double>(ns)), 0);
        series.points.emplace_back(us(static_cast<double>(ns)),
                                   100 * static_cast<double>(count) / static_cast<double>(kind.calls));
      }
      chart.series.push_back(std::move(series));
    }
    chart.marks.push_back({.name = "round trip", .at = us(report.round_trip), .is_vertical = true});
    chart.marks.push_back({.name = "ideal, of all", .at = us(report.ideal), .is_vertical = true});
    return chart;
  }

  static SvgChart signal_chart(const FabricReport& report) {
    SvgChart chart = over_time(report, "Marks and drops", "packets per us");
    const auto add_series = [&](const TimeSeries& packets, const char* name, const char* colour) {
      chart.series.push_back(series_of(report, packets, name, colour, [&](const auto& span) {
        return static_cast<double>(span.count) / us(packets.width());
      }));
    };
    add_series(report.marked, "marked", kColours[1]);
    add_series(report.dropped, "dropped", "#b3261e");
    return chart;
  }

  void calls(const FabricReport& report) {
    add("<h3>Calls</h3>\n<div class=\"wide\"><table><tr><th>kind</th><th>priority</th><th>made</th><th>answered</th>"
        "<th>failed</th><th>p50 (us)</th><th>p99 (us)</th><th>longest (us)</th></tr>\n");
    for (const FabricReport::Kind& kind : report.kinds) {
      std::uint64_t failed = 0;
      for (const auto& [code, count] : kind.failed) failed += count;
      add("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td></"
          "tr>\n",
          kind.kind.name, kind.kind.priority, grouped(kind.calls), grouped(kind.completed), grouped(failed),
          us(static_cast<double>(kind.times_ns.quantile(0.5))), us(static_cast<double>(kind.times_ns.quantile(0.99))),
          us(kind.longest));
    }
    add("</table></div>\n");
  }

  void queues(const FabricReport& report) {
    add("<h3>Queues, as each packet found them</h3>\n<div class=\"wide\"><table><tr><th>ports</th><th>number</th>"
        "<th>packets</th><th>drops</th><th>marks</th><th>p50 (B)</th><th>p99 (B)</th><th>p99 of the worst (B)</th>"
        "<th>longest (B)</th></tr>\n");
    for (std::size_t i = 0; i < kPortKinds; ++i) {
      const QueueReport& queue = report.queues[i];
      if (queue.ports == 0) continue;
      add("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></"
          "tr>\n",
          name_of(static_cast<PortKind>(i)), grouped(queue.ports), grouped(queue.packets), grouped(queue.drops),
          grouped(queue.marks), grouped(queue.p50), grouped(queue.p99), grouped(queue.worst_p99),
          grouped(queue.largest));
    }
    add("</table></div>\n");
  }

  void packets(const FabricReport& report) {
    const Counters& e = report.engines;
    add("<h3>Packets</h3>\n<div class=\"wide\"><table><tr><th>sent</th><th>IP bytes</th><th>payload bytes</th>"
        "<th>control-only</th><th>found lost</th><th>bytes sent again</th><th>probe timeouts</th><th>lost at "
        "random</th>"
        "<th>paths</th></tr>\n");
    add("<tr><td "
        "style=\"text-align:left\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td></tr>\n</table></div>\n",
        grouped(report.counts.packets), grouped(report.counts.ip_bytes), grouped(report.payload_bytes),
        grouped(e.packets_control_only), grouped(e.packets_lost), grouped(e.bytes_retransmitted),
        grouped(e.probe_timeouts), grouped(report.counts.lost), grouped(report.paths));
    add("<p class=\"soft\">{} events; hash {:016x}.</p>\n", grouped(report.events), report.hash);
  }

  std::string out_;
};

}  // namespace

std::string fabric_page(std::span<const FabricReport> reports) { return Page().make(reports); }

}  // namespace weir::sim
