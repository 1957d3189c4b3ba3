#include "apps/weir/perf_meter.h"

#include <fmt/format.h>

#include "apps/weir/format.h"
#include "apps/weir/json.h"
#include "apps/weir/path.h"
#include "apps/weir/perf_options.h"

namespace weir::command {

namespace {

constexpr double kMegabyte = 1e6;
constexpr std::uint32_t kFirstDatagramBytes = 1200;

double microseconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

const char* link_name(const PerfOptions& options) {
#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
  return options.portable_link ? "udp-portable" : "udp-linux";
#else
  (void)options;
  return "udp-portable";
#endif
}

const char* security_name(const PerfOptions& options) {
  return !options.identity.empty() ? "identity" : options.development ? "development" : "secret";
}

}  // namespace

void PerfMeter::begin(std::int64_t now, const Counters& counters) {
  calls_ = 0;
  interval_.clear();
  total_.clear();
  began_ns_ = interval_began_ns_ = now;
  interval_began_calls_ = 0;
  cpu_began_s_ = cpu_seconds();
  began_ = interval_counters_ = counters;
}

std::string PerfMeter::interval_heading(std::string_view many) {
  return fmt::format("{:>17}  {:>10}  {:>14}  {:>10}  {:>10}  {}", "seconds", fmt::format("{}/s", many), "payload",
                     "p50", "p99", "sent again");
}

std::string PerfMeter::close_interval(std::int64_t now, const Counters& counters, std::uint64_t payload_per_call) {
  double from = static_cast<double>(interval_began_ns_ - began_ns_) * 1e-9;
  double to = static_cast<double>(now - began_ns_) * 1e-9;
  std::uint64_t calls = calls_ - interval_began_calls_;
  double rate = static_cast<double>(calls) / (to - from);
  std::string line = fmt::format(
      "{:>8.2f}-{:<8.2f}  {:>10}  {:>9.1f} MB/s  {:>10}  {:>10}  {}, {}", from, to, in_rate(rate),
      rate * static_cast<double>(payload_per_call) / kMegabyte, time_at(interval_, 0.5), time_at(interval_, 0.99),
      counted(counters.frames_retransmitted - interval_counters_.frames_retransmitted, "frame"),
      in_bytes(counters.bytes_retransmitted - interval_counters_.bytes_retransmitted));
  total_.merge(interval_);
  interval_.clear();
  interval_began_ns_ = now;
  interval_began_calls_ = calls_;
  interval_counters_ = counters;
  return line;
}

void PerfMeter::end(std::int64_t now, const Counters& counters, bool is_interrupted) {
  is_interrupted_ = is_interrupted;
  total_.merge(interval_);
  interval_.clear();
  ended_ns_ = now;
  ended_ = counters;
  cpu_s_ = cpu_seconds() - cpu_began_s_;
}

std::string PerfMeter::summary(const PerfClientOptions& options) const {
  double rate = static_cast<double>(calls_) / seconds();
  auto payload = static_cast<double>(payload_bytes(options));
  auto total_at = [&](double fraction) { return time_at(total_, fraction); };
  const PatternWords words = words_of(options.pattern);
  std::string text = fmt::format("\n{} {} in {:.2f} s: {} {}/s, {:.1f} MB/s of payload, {} failed\n",
                                 with_commas(calls_), calls_ == 1 ? words.one : words.many, seconds(), in_rate(rate),
                                 words.many, rate * payload / kMegabyte, with_commas(errors_));
  text += fmt::format("latency   p50 {}  p90 {}  p99 {}  p99.9 {}  max {}  (of {} that were timed{})\n", total_at(0.5),
                      total_at(0.9), total_at(0.99), total_at(0.999), total_at(1), with_commas(total_.count()),
                      sample_every_ == 1 ? "" : fmt::format(", about one in {}", sample_every_));
  std::uint64_t sent = ended_.bytes_sent - began_.bytes_sent;
  std::uint64_t again = ended_.bytes_retransmitted - began_.bytes_retransmitted;
  text += fmt::format("sent      {} in {} packets, {} of them control only; {} again ({:.2f} %); goodput {:.3f}\n",
                      in_bytes(sent), with_commas(ended_.packets_sent - began_.packets_sent),
                      with_commas(ended_.packets_control_only - began_.packets_control_only), in_bytes(again),
                      100 * share(again, sent), share(ended_.payload_bytes_sent - began_.payload_bytes_sent, sent));
  if (const std::uint64_t waited_ns = ended_.nic_wait_ns - began_.nic_wait_ns; waited_ns != 0) {
    text += fmt::format("nic       waited for {:.2f} s\n", static_cast<double>(waited_ns) * 1e-9);
  }
  text += fmt::format("cpu       {:.2f} s, {:.0f} % of a core\n", cpu_s_, 100 * cpu_s_ / seconds());
  return text;
}

std::string PerfMeter::sweep_heading(std::string_view many) {
  return fmt::format("{:>13}  {:>11}  {:>10}  {:>12}  {:>7}  {:>10}  {:>10}  {}", "size", "outstanding",
                     fmt::format("{}/s", many), "payload", "goodput", "p50", "p99", "sent again");
}

std::string PerfMeter::sweep_line(const PerfClientOptions& options) const {
  const double rate = static_cast<double>(calls_) / seconds();
  const std::uint64_t sent = ended_.bytes_sent - began_.bytes_sent;
  return fmt::format("{:>11} B  {:>11}  {:>10}  {:>7.3f} GB/s  {:>7.3f}  {:>10}  {:>10}  {}",
                     with_commas(options.request_bytes), with_commas(options.window), in_rate(rate),
                     rate * static_cast<double>(payload_bytes(options)) / 1e9,
                     share(ended_.payload_bytes_sent - began_.payload_bytes_sent, sent), time_at(total_, 0.5),
                     time_at(total_, 0.99), in_bytes(ended_.bytes_retransmitted - began_.bytes_retransmitted));
}

std::string PerfMeter::json(const PerfClientOptions& options, std::uint32_t datagram_bytes) const {
  double rate = static_cast<double>(calls_) / seconds();
  std::uint64_t sent = ended_.bytes_sent - began_.bytes_sent;
  // Every path starts with this much, and no news means that it stayed there.
  std::uint32_t largest = datagram_bytes != 0 ? datagram_bytes : kFirstDatagramBytes;
  JsonObject latency;
  latency.add("p50", microseconds(total_.at(0.5)))
      .add("p90", microseconds(total_.at(0.9)))
      .add("p99", microseconds(total_.at(0.99)))
      .add("p999", microseconds(total_.at(0.999)))
      .add("max", microseconds(total_.max()))
      .add("mean", total_.mean() / 1e3)
      .add("samples", total_.count());
  JsonObject object;
  if (first_error_) object.add("error", printable(first_error_->to_string()));
  return object.add("calls", calls_)
      .add("errors", errors_)
      .add("interrupted", is_interrupted_)
      .add("seconds", seconds(), 6)
      .add("calls_per_s", rate, 1)
      .add("payload_bytes_per_s", rate * static_cast<double>(payload_bytes(options)), 1)
      .add_text("latency_us", latency.text())
      .add("bytes_sent", sent)
      .add("bytes_received", ended_.bytes_received - began_.bytes_received)
      .add("bytes_retransmitted", ended_.bytes_retransmitted - began_.bytes_retransmitted)
      .add("frames_retransmitted", ended_.frames_retransmitted - began_.frames_retransmitted)
      .add("packets_sent", ended_.packets_sent - began_.packets_sent)
      .add("packets_received", ended_.packets_received - began_.packets_received)
      .add("packets_control_only", ended_.packets_control_only - began_.packets_control_only)
      .add("nic_waits", ended_.nic_waits - began_.nic_waits)
      .add("nic_wait_s", static_cast<double>(ended_.nic_wait_ns - began_.nic_wait_ns) * 1e-9)
      .add("packets_lost", ended_.packets_lost - began_.packets_lost)
      .add("send_calls", ended_.send_calls - began_.send_calls)
      .add("receive_calls", ended_.receive_calls - began_.receive_calls)
      .add("tokens_used", ended_.tokens_used - began_.tokens_used)
      .add("regions_granted", ended_.regions_granted - began_.regions_granted)
      .add("polls", ended_.polls - began_.polls)
      .add("goodput", share(ended_.payload_bytes_sent - began_.payload_bytes_sent, sent), 4)
      .add("cpu_s", cpu_s_)
      .add("window", options.window)
      .add("request_bytes", options.request_bytes)
      .add("reply_bytes", options.reply_bytes)
      .add("peers", options.peers.size())
      .add("pattern", words_of(options.pattern).one)
      .add("mode", options.mode == Mode::threads ? "threads" : "inline")
      .add("idle", options.idle == Idle::spin ? "spin" : "adaptive")
      .add("mtu", largest + static_cast<std::uint32_t>(ip_and_udp_bytes(options.is_v6)))
      .add("aes_backend", aes_in_use(options.openssl))
      .add("link", link_name(options))
      .add("security", security_name(options))
      .text();
}

}  // namespace weir::command
