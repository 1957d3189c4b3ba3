#include "burst.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace weir::bench {
namespace {

constexpr std::uint32_t kLargestBody = 16'000;  // what every contestant sends as a small message
constexpr unsigned kMostPeers = 4096;
constexpr std::uint32_t kMostCalls = 1u << 20;
constexpr double kLongestDeadlineSeconds = 3600;
constexpr std::size_t kLongestLine = 4096;

enum class Asked : std::uint8_t { nothing, round, counters, end };

class Input {
 public:
  // What the next line asks for; `nothing` if none has arrived. Waits for a line if told to.
  Asked next(bool waits) {
    for (;;) {
      if (const std::size_t end = pending_.find('\n'); end != std::string::npos) {
        const std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        if (line == "round") return Asked::round;
        if (line == "counters") return Asked::counters;
        fail("'" + line + "' is nothing that this program can be asked for");
      }
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (!waits && poll(&input, 1, 0) <= 0) return Asked::nothing;
      char bytes[256];
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
      if (count <= 0) return Asked::end;
      pending_.append(bytes, static_cast<std::size_t>(count));
      if (pending_.size() > kLongestLine) fail("a line is too long");
    }
  }

 private:
  std::string pending_;
};

void say(const std::string& object) {
  std::printf("%s\n", object.c_str());
  std::fflush(stdout);
}

std::string json(const Round& round) {
  std::string sentence;  // without what would have to be escaped
  for (const char c : round.first_failure) {
    sentence += c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return "{\"begin_ns\":" + std::to_string(round.begin_ns) + ",\"end_ns\":" + std::to_string(round.end_ns) +
         ",\"completed\":" + std::to_string(round.completed) + ",\"failed\":" + std::to_string(round.failed) +
         ",\"first_failure\":\"" + sentence + "\"}";
}

Options parse(int argument_count, char** arguments, std::vector<std::string> extra) {
  extra.insert(extra.end(), {"peers", "deadline"});
  Options options = parse_options(argument_count, arguments, extra, kLargestBody, kMostCalls);
  prepare_process(options);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // also in the middle of a round
  return options;
}

}  // namespace

Burst::Burst(int argument_count, char** arguments, std::vector<std::string> extra)
    : options(parse(argument_count, arguments, std::move(extra))),
      peers(static_cast<unsigned>(parse_number("peers", options.other("peers", "1"), 1, kMostPeers))),
      seconds(parse_number("deadline", options.other("deadline", "60"), 1, kLongestDeadlineSeconds)) {}

std::string Burst::address_of(unsigned peer) const {
  const std::uint32_t port = ntohs(parse_address(options.address).sin_port) + peer;
  if (port > 65'535) fail("there are not so many ports from " + options.address + " on");
  return options.address.substr(0, options.address.rfind(':')) + ":" + std::to_string(port);
}

std::string no_counters() { return "{}"; }

void answer_as_server(const TellCounters& counters) {
  say("{\"ready\":true}");
  for (Input input;;) {
    switch (input.next(true)) {
      case Asked::counters:
        say(counters());
        break;
      case Asked::round:
        fail("a server makes no calls");
      case Asked::nothing:
      case Asked::end:
        return;
    }
  }
}

void answer_as_client(const std::function<Round()>& make_round, const TellCounters& counters,
                      const std::function<void()>& turn) {
  say("{\"ready\":true}");
  for (Input input;;) {
    switch (input.next(!turn)) {
      case Asked::nothing:
        turn();
        break;
      case Asked::round:
        say(json(make_round()));
        break;
      case Asked::counters:
        say(counters());
        break;
      case Asked::end:
        return;
    }
  }
}

}  // namespace weir::bench
