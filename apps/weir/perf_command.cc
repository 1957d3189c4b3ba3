#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/perf_options.h"
#include "apps/weir/perf_relay.h"
#include "apps/weir/process.h"

namespace weir::command {

namespace {

const std::vector<std::pair<std::string, Mode>> kModes{{"inline", Mode::inline_loop}, {"threads", Mode::threads}};
const std::vector<std::pair<std::string, Idle>> kIdles{{"spin", Idle::spin}, {"adaptive", Idle::adaptive}};
const std::vector<std::pair<std::string, BufferMemory>> kBufferMemories{{"heap", BufferMemory::heap},
                                                                        {"pages", BufferMemory::pages},
                                                                        {"huge_pages", BufferMemory::huge_pages},
                                                                        {"files", BufferMemory::files}};

// A word for a value. CLI11's own way to say it names the numbers behind the words, and these would not print.
template <class Enum>
CLI::Validator one_of(const std::vector<std::pair<std::string, Enum>>& words) {
  std::string all;
  for (const auto& [word, value] : words) all += (all.empty() ? "" : "|") + word;
  return CLI::Validator(
      [&words, all](std::string& given) -> std::string {
        for (const auto& [word, value] : words) {
          if (given != word) continue;
          given = std::to_string(static_cast<int>(value));
          return {};
        }
        return fmt::format("there is no \"{}\"; give one of {}", given, all);
      },
      all, "");
}

void add_common(CLI::App& command, PerfOptions& options) {
  add_security(command, options);
  command.add_option("--mode", options.mode, "inline: one loop, no threads. threads: worker threads")
      ->transform(one_of(kModes))
      ->default_str("inline");
  command.add_option("--core", options.core, "CPU to run on, with all threads (default: any)")
      ->check(CLI::Range(0, 4095))
      ->type_name("C");
  command
      .add_option(
          "--mtu", options.mtu,
          "Do not send packets larger than this, IP header included: 1500 is Ethernet's (default: what the path "
          "gives)")
      ->check(CLI::Range(1228, 65535))
      ->type_name("BYTES");
  add_bandwidth(command, options.nic_bits_per_s, "Send no faster than this, all workers together");
  command
      .add_option("--nic", options.nic,
                  "Interface that this is the rate of (default: that of the address to listen at)")
      ->needs("--nic-bandwidth")
      ->type_name("NAME");
  command.add_flag("--portable", options.portable_link, "Use the portable link instead of Linux's offloads");
  command.add_flag("--openssl", options.openssl, "Use OpenSSL's AES instead of the fastest there is");
  command.add_option("--buffers", options.buffers.memory, "What large messages live in")
      ->transform(one_of(kBufferMemories))
      ->default_str("heap");
  command.add_option("--buffer-directory", options.buffers.directory, "Where, with --buffers files")->type_name("DIR");
}

CLI::Option* add_idle(CLI::App& command, Idle& idle, const char* otherwise) {
  return command.add_option("--idle", idle, "spin: never sleep. adaptive: sleep when there is nothing to do")
      ->transform(one_of(kIdles))
      ->default_str(otherwise);
}

void add_server(CLI::App& perf) {
  auto options = std::make_shared<PerfServerOptions>();
  CLI::App* command =
      perf.add_subcommand("server", "Answer `weir perf client`, `put`, `get` and `broadcast` until Ctrl-C");
  command->add_option("--listen", options->listen, "Address to serve, such as 0.0.0.0:4433 (port 0: any)")
      ->required()
      ->type_name("ADDR");
  add_common(*command, *options);
  add_idle(*command, options->idle, "adaptive");
  command->add_option("--workers", options->workers, "Worker threads, with --mode threads")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--servers", options->servers, "As many servers, at consecutive ports, in one process")
      ->check(CLI::Range(1u, 1024u))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--largest", options->largest_bytes, "Largest request or reply to take part in")
      ->check(CLI::Range(std::uint64_t{1}, kMaxBodyBytes))
      ->type_name("BYTES")
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "End after this time (default: when told to)")
      ->check(CLI::Range(0.01, 1e9))
      ->type_name("S");
  command->callback([options] {
    choose_security(*options);
    run_perf_server(*options);
  });
}

// A size that is asked for.
void add_size(CLI::App& command, const char* option, std::uint64_t& bytes, std::uint64_t fewest, const char* what) {
  command.add_option(option, bytes, what)
      ->check(CLI::Range(fewest, kMaxBodyBytes))
      ->type_name("BYTES")
      ->capture_default_str();
}

void add_sweep(CLI::App& command, PerfClientOptions& options) {
  CLI::Option* const sweep = command.add_flag("--sweep", options.sweep,
                                              "Measure every size with every window, --seconds each; prints a table");
  sweep->excludes("--size")->excludes("--window");
  command.add_option("--sizes", options.sizes, "Bytes of requests to sweep over, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{0}, kMaxBodyBytes))
      ->type_name("BYTES[,BYTES...]")
      ->needs(sweep);
  command.add_option("--windows", options.windows, "Calls outstanding at a time to sweep over, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1u << 20))
      ->type_name("N[,N...]")
      ->needs(sweep);
}

struct PatternHelp {
  Pattern pattern;
  const char* name;
  const char* what;
};

void add_client(CLI::App& perf, const PatternHelp& help) {
  auto options = std::make_shared<PerfClientOptions>();
  options->pattern = help.pattern;
  CLI::App* command = perf.add_subcommand(help.name, help.what);
  command
      ->add_option("--peer", options->peers,
                   help.pattern == Pattern::broadcast ? "Servers, separated by commas"
                                                      : "Servers, taken in turn, separated by commas")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ADDR[,ADDR...]");
  command->add_option("--name", options->name, "What the servers' certificates must prove (default: their addresses)")
      ->type_name("NAME");
  std::string many = words_of(help.pattern).many;
  std::string many_at_first = many;
  many_at_first[0] = static_cast<char>(std::toupper(many_at_first[0]));
  command->add_option("--window", options->window, many_at_first + " outstanding at a time")
      ->check(CLI::Range(1u, 1u << 20))
      ->type_name("N")
      ->capture_default_str();
  constexpr std::uint64_t kBulkBytes = 1 << 20;
  switch (help.pattern) {
    case Pattern::call:
      add_size(*command, "--size", options->request_bytes, 0,
               "Bytes of a request; more than 64 MiB need --largest at the server");
      add_size(*command, "--reply", options->reply_bytes, 0, "Bytes of a reply; likewise");
      add_size(*command, "--max-reply", options->max_reply, 0,
               "Bytes of the largest reply to accept: less memory is reserved for each call; 0: any");
      break;
    case Pattern::get:
      options->request_bytes = 0;
      options->reply_bytes = kBulkBytes;
      add_size(*command, "--size", options->reply_bytes, 1,
               "Bytes to get; more than 64 MiB need --largest at the server");
      break;
    case Pattern::put:
    case Pattern::broadcast:
      options->request_bytes = kBulkBytes;
      options->reply_bytes = 0;
      // The first bytes of a broadcast say how long the replies shall be.
      add_size(*command, "--size", options->request_bytes, help.pattern == Pattern::put ? 1 : kReplyLengthBytes,
               "Bytes to send; more than 64 MiB need --largest at the server");
      if (help.pattern == Pattern::broadcast) {
        add_size(*command, "--max-reply", options->max_reply, 0, "Bytes of the largest reply to accept; 0: any");
      }
      break;
  }
  CLI::Option* seconds = command->add_option("--seconds", options->seconds, "How long to measure")
                             ->check(CLI::Range(0.01, 1e9))
                             ->type_name("S")
                             ->capture_default_str();
  command->add_option("--count", options->count, fmt::format("Measure this many {} instead of a time", many))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 60))
      ->type_name("N")
      ->excludes(seconds);
  command->add_option("--warm-up", options->warm_up_seconds, "Time before the measurement, not with --count")
      ->check(CLI::Range(0.0, 3600.0))
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--interval", options->interval_seconds, "Seconds between lines while it runs; 0: none")
      ->check(CLI::Range(0.0, 3600.0))
      ->type_name("S")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object and nothing else");
  if (help.pattern == Pattern::call) add_sweep(*command, *options);
  add_common(*command, *options);
  CLI::Option* idle = add_idle(*command, options->idle, "spin inline, adaptive with threads");
  command->callback([options, idle] {
    tell_failures_as_json(options->json);
    choose_security(*options);
    if (!options->name.empty() && options->identity.empty()) fail_use("--name has a meaning only with --identity");
    if (idle->empty()) options->idle = options->mode == Mode::inline_loop ? Idle::spin : Idle::adaptive;
    options->largest_bytes = std::max({options->largest_bytes, options->request_bytes, options->reply_bytes});
    options->has_large = is_large(*options);
    if (options->sweep) return run_perf_sweep(*options);
    run_perf_client(*options);
  });
}

void add_relay(CLI::App& perf) {
  auto options = std::make_shared<PerfRelayOptions>();
  CLI::App* command =
      perf.add_subcommand("relay", "Stand between clients and a server as a network that delays and loses datagrams");
  command->add_option("--listen", options->listen, "Address for clients, such as 127.0.0.1:4434 (port 0: any)")
      ->required()
      ->type_name("ADDR");
  command->add_option("--to", options->to, "The server")->required()->type_name("ADDR");
  const auto add = [command](const char* option, double& value, double most, const char* type, const char* what) {
    command->add_option(option, value, what)->check(CLI::Range(0.0, most))->type_name(type)->capture_default_str();
  };
  add("--delay", options->delay_ms, 10'000, "MS", "Delay of each datagram, in each direction");
  add("--jitter", options->jitter_ms, 10'000, "MS", "Delay each by up to so much more: they overtake each other");
  add("--reorder", options->reorder, 1, "SHARE", "Share of datagrams that are still later, between 0 and 1");
  add("--reorder-by", options->reorder_ms, 10'000, "MS", "by up to so much");
  add("--loss", options->loss, 1, "SHARE", "Share of datagrams that are dropped, between 0 and 1");
  command->add_option("--seed", options->seed, "Decides which ones")->capture_default_str();
  command->add_option("--seconds", options->seconds, "End after this time (default: when told to)")
      ->check(CLI::Range(0.01, 1e9))
      ->type_name("S");
  command->add_flag("--json", options->json, "Say in the end what became of the datagrams as one JSON object");
  command->callback([options] { run_perf_relay(*options); });
}

// So that several messages of this size can be under way.
void raise_to(std::uint64_t largest_bytes, Limits& limits) {
  constexpr std::size_t kAtOnce = 4;
  limits.message_bytes = std::max<std::size_t>(limits.message_bytes, largest_bytes);
  for (std::size_t* room : {&limits.large_request_bytes, &limits.nested_large_request_bytes, &limits.large_reply_bytes,
                            &limits.large_bytes_per_peer, &limits.buffer_bytes}) {
    *room = std::max(*room, kAtOnce * limits.message_bytes);
  }
}

}  // namespace

Config to_config(const PerfOptions& options, std::shared_ptr<Witness> witness) {
  Config config;
  apply_security(options, config);
  config.workers = options.mode == Mode::threads ? options.workers : 0;
  config.idle = options.idle;
  // Small messages are served inline; large ones are opened and sealed beside the worker.
  config.executor_threads = options.mode == Mode::threads && options.has_large ? 1 : 0;
  raise_to(options.largest_bytes, config.limits);
  if (options.mtu != 0) config.datagram_bytes = static_cast<std::size_t>(options.mtu - ip_and_udp_bytes(options.is_v6));
  config.nic_bits_per_s = options.nic_bits_per_s;
  config.nic = options.nic;
  config.portable_link = options.portable_link;
  config.openssl_aead = options.openssl;
  config.buffers = options.buffers;
  config.subscriber = std::move(witness);
  if (options.core >= 0) {
    // Worker threads inherit it.
    if (auto pinned = pin_to_core(options.core); !pinned) note(pinned.error().message());
  }
  return config;
}

void add_perf_command(CLI::App& app) {
  CLI::App* perf = app.add_subcommand("perf", "Measure calls, puts, gets and broadcasts between processes or machines");
  perf->require_subcommand(1);
  perf->footer(
      "Example, on one machine:\n"
      "  export WEIR_SECRET=$(openssl rand -hex 32)\n"
      "  weir perf server --listen 127.0.0.1:4433 --core 0 --idle spin &\n"
      "  weir perf client --peer 127.0.0.1:4433 --core 1 --window 1024\n"
      "The same with made-up identities: no secret, and --development ./development on both sides.");
  add_server(*perf);
  for (const PatternHelp& help : {
           PatternHelp{Pattern::call, "client", "Keep calls outstanding to servers and measure"},
           PatternHelp{Pattern::put, "put", "Put bytes into the servers' memory, over and over, and measure"},
           PatternHelp{Pattern::get, "get", "Get bytes of the servers' memory, over and over, and measure"},
           PatternHelp{Pattern::broadcast, "broadcast", "Send what was sealed once to all servers, and measure"},
       }) {
    add_client(*perf, help);
  }
  add_relay(*perf);
}

}  // namespace weir::command
