// What every program of this folder shares: options, pinning, a latency histogram and the report as one JSON object.
//
// A request starts with a Header; the server answers with `reply_bytes` bytes that start with the same Header, so the
// client alone decides the sizes and can tell which of its outstanding calls was answered.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weir::bench {

struct Header {
  std::uint16_t slot = 0;
  std::uint16_t generation = 0;  // tells a late answer from the answer to the slot's next call
  std::uint32_t reply_bytes = 0;
};
static_assert(sizeof(Header) == 8);

constexpr std::uint32_t kMaximumBody = 65'000;  // of a message in one datagram
constexpr std::uint32_t kMaximumWindow = 65'535;
constexpr double kWarmUpSeconds = 0.2;

[[noreturn]] inline void fail(const std::string& sentence) {
  std::fprintf(stderr, "error: %s\n", sentence.c_str());
  std::exit(1);
}

[[noreturn]] inline void fail_with_errno(const std::string& what) { fail(what + ": " + std::strerror(errno)); }

struct Options {
  bool is_server = false;
  std::string address = "127.0.0.1:7777";
  std::uint32_t window = 1;
  std::uint32_t request_bytes = 32;
  std::uint32_t reply_bytes = 32;
  double seconds = 2;
  int core = -1;
  std::map<std::string, std::string> others;  // what only one of the programs understands

  std::string other(const std::string& name, const std::string& fallback) const {
    auto found = others.find(name);
    return found == others.end() ? fallback : found->second;
  }
};

inline double parse_number(const std::string& name, const std::string& text, double lowest, double highest) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= lowest && value <= highest)) {
    fail("--" + name + " needs a number between " + std::to_string(static_cast<long>(lowest)) + " and " +
         std::to_string(static_cast<long>(highest)) + ", not '" + text + "'");
  }
  return value;
}

// `extra` names the options, each with a value, that this program understands besides the common ones.
inline Options parse_options(int argument_count, char** arguments, const std::vector<std::string>& extra,
                             std::uint32_t maximum_body = kMaximumBody, std::uint32_t maximum_window = kMaximumWindow) {
  std::string usage = std::string("usage: ") + arguments[0] + " server --listen ADDR [--core C]\n       " +
                      arguments[0] +
                      " client --peer ADDR [--window N] [--size BYTES] [--reply BYTES] [--seconds S] [--core C]\n"
                      "besides:";
  for (const std::string& name : extra) usage += " --" + name + " VALUE";
  if (extra.empty()) usage += " nothing";
  std::string role = argument_count > 1 ? arguments[1] : "";
  if (role == "--help" || role == "help") {
    std::puts(usage.c_str());
    std::exit(0);
  }
  if (role != "server" && role != "client") fail("the first argument must be 'server' or 'client'\n" + usage);

  Options options;
  options.is_server = role == "server";
  for (int i = 2; i < argument_count; i += 2) {
    std::string name = arguments[i];
    if (!name.starts_with("--")) fail("unexpected argument '" + name + "'\n" + usage);
    name.erase(0, 2);
    if (i + 1 >= argument_count) fail("--" + name + " needs a value\n" + usage);
    std::string value = arguments[i + 1];
    auto body = [&] { return static_cast<std::uint32_t>(parse_number(name, value, sizeof(Header), maximum_body)); };
    if (name == "listen" || name == "peer") {
      options.address = value;
    } else if (name == "window") {
      options.window = static_cast<std::uint32_t>(parse_number(name, value, 1, maximum_window));
    } else if (name == "size") {
      options.request_bytes = body();
    } else if (name == "reply") {
      options.reply_bytes = body();
    } else if (name == "seconds") {
      options.seconds = parse_number(name, value, 0.01, 3600);
    } else if (name == "core") {
      options.core = static_cast<int>(parse_number(name, value, 0, 4095));
    } else if (std::find(extra.begin(), extra.end(), name) != extra.end()) {
      options.others[name] = value;
    } else {
      fail("unknown option --" + name + "\n" + usage);
    }
  }
  return options;
}

inline sockaddr_in parse_address(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  auto colon = text.rfind(':');
  if (colon == std::string::npos || inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    fail("'" + text + "' is no IPv4 address with a port, such as 127.0.0.1:7777");
  }
  address.sin_port = htons(static_cast<std::uint16_t>(parse_number("listen", text.substr(colon + 1), 1, 65535)));
  return address;
}

// Call before any library starts threads: they inherit the affinity. A server also ends with whoever started it.
inline void prepare_process(const Options& options) {
  if (options.is_server) prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (options.core < 0) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(options.core), &cores);
  if (sched_setaffinity(0, sizeof(cores), &cores) != 0) {
    fail_with_errno("cannot pin to core " + std::to_string(options.core));
  }
}

inline std::uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

inline double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Log-linear: 128 buckets per power of two, so a percentile is off by less than 1 %.
class Histogram {
 public:
  void record(std::uint64_t nanoseconds) {
    counts_[bucket(nanoseconds)]++;
    total_++;
    maximum_ = std::max(maximum_, nanoseconds);
  }

  double percentile_us(double fraction) const {
    auto rank = static_cast<std::uint64_t>(fraction * static_cast<double>(total_));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); i++) {
      seen += counts_[i];
      if (seen > rank) return static_cast<double>(std::min(middle(i), maximum_)) * 1e-3;
    }
    return maximum_us();
  }

  double maximum_us() const { return static_cast<double>(maximum_) * 1e-3; }

 private:
  static constexpr unsigned kBits = 7;
  static constexpr std::size_t kBuckets = (64 - kBits + 1) << kBits;

  static std::size_t bucket(std::uint64_t value) {
    if (value < (1u << kBits)) return value;
    auto shift = static_cast<unsigned>(std::bit_width(value)) - kBits - 1;
    return (static_cast<std::size_t>(shift) << kBits) + static_cast<std::size_t>(value >> shift);
  }

  static std::uint64_t middle(std::size_t index) {
    if (index < (2u << kBits)) return index;
    auto shift = (index >> kBits) - 1;
    return (((index & ((1u << kBits) - 1)) + (1u << kBits)) << shift) + (std::uint64_t{1} << shift) / 2;
  }

  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t total_ = 0;
  std::uint64_t maximum_ = 0;
};

// One per client. Counts what completes between the end of the warm-up and the end of the run.
class Measurement {
 public:
  explicit Measurement(const Options& options) : options_(options) {}

  // The first answer has arrived: connections and handshakes are paid for.
  void connected(std::uint64_t now) {
    if (start_ns_ != 0) return;
    start_ns_ = now + static_cast<std::uint64_t>(kWarmUpSeconds * 1e9);
    end_ns_ = start_ns_ + static_cast<std::uint64_t>(options_.seconds * 1e9);
  }

  void completed(std::uint64_t sent_ns, std::uint64_t now) {
    if (now < start_ns_) return;
    if (!measuring_) {
      measuring_ = true;
      first_ns_ = now;
      cpu_at_start_ = process_cpu_seconds();
    }
    last_ns_ = now;
    calls_++;
    latency_.record(now - sent_ns);
  }

  void failed() { errors_++; }
  void lost() { lost_++; }
  bool is_connected() const { return start_ns_ != 0; }
  bool is_over(std::uint64_t now) const { return start_ns_ != 0 && now >= end_ns_; }

  // Returns the exit code. `details` is appended inside the object, for example `,"mode":"spinning"`.
  int print(const std::string& details = "") const {
    double cpu_seconds = measuring_ ? process_cpu_seconds() - cpu_at_start_ : 0;
    if (calls_ < 2) fail("no call completed; is the server at " + options_.address + "?");
    double seconds = static_cast<double>(std::max<std::uint64_t>(last_ns_ - first_ns_, 1)) * 1e-9;
    double rate = static_cast<double>(calls_) / seconds;
    std::printf(
        "{\"calls\":%llu,\"errors\":%llu,\"lost\":%llu,\"seconds\":%.4f,\"calls_per_s\":%.1f,"
        "\"payload_bytes_per_s\":%.0f,\"latency_us\":{\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"p999\":%.3f,"
        "\"max\":%.3f},\"cpu_s\":%.3f%s}\n",
        static_cast<unsigned long long>(calls_), static_cast<unsigned long long>(errors_),
        static_cast<unsigned long long>(lost_), seconds, rate,
        rate * (static_cast<double>(options_.request_bytes) + static_cast<double>(options_.reply_bytes)),
        latency_.percentile_us(0.5), latency_.percentile_us(0.9), latency_.percentile_us(0.99),
        latency_.percentile_us(0.999), latency_.maximum_us(), cpu_seconds, details.c_str());
    return errors_ == 0 ? 0 : 1;
  }

 private:
  const Options& options_;
  Histogram latency_;
  std::uint64_t start_ns_ = 0, end_ns_ = 0, first_ns_ = 0, last_ns_ = 0;
  std::uint64_t calls_ = 0, errors_ = 0, lost_ = 0;
  double cpu_at_start_ = 0;
  bool measuring_ = false;
};

}  // namespace weir::bench
