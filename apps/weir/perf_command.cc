#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/perf_options.h"
#include "apps/weir/process.h"

namespace weir::command {

namespace {

const std::vector<std::pair<std::string, Mode>> kModes{{"inline", Mode::inline_loop}, {"threads", Mode::threads}};
const std::vector<std::pair<std::string, Idle>> kIdles{{"spin", Idle::spin}, {"adaptive", Idle::adaptive}};

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
  // Not CLI11's way to read the variable: that could not tell it from the option, and one that is set for other
  // commands must not forbid --identity.
  command.add_option(
      "--secret", options.secret,
      "What both sides know: at least 16 bytes. Better given by WEIR_SECRET, where `ps` does not show it");
  command
      .add_option("--identity", options.identity,
                  "Prove who we are with node.crt, node.key and ca.crt of this directory, as `weir identity issue` "
                  "writes them")
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  command
      .add_option_function<std::vector<std::string>>(
          "--development",
          [&options](const std::vector<std::string>& given) { options.development = given.empty() ? "" : given[0]; },
          "Made-up identities: believe every process that can read the directory (default: one that all "
          "programs of this user share)")
      ->expected(0, 1)
      ->type_name("[DIR]");
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
  command.add_flag("--portable", options.portable_link, "Use the portable link instead of Linux's offloads");
  command.add_flag("--openssl", options.openssl, "Use OpenSSL's AES instead of the fastest there is");
}

CLI::Option* add_idle(CLI::App& command, Idle& idle, const char* otherwise) {
  return command.add_option("--idle", idle, "spin: never sleep. adaptive: sleep when there is nothing to do")
      ->transform(one_of(kIdles))
      ->default_str(otherwise);
}

// The command line wins over the environment.
void choose_security(PerfOptions& options) {
  const int given = !options.secret.empty() + !options.identity.empty() + options.development.has_value();
  if (given > 1) fail("give only one of --secret, --identity and --development");
  if (given == 1) return;
  if (const char* secret = std::getenv("WEIR_SECRET"); secret != nullptr) options.secret = secret;
  if (options.secret.empty()) {
    fail(
        "how do client and server know each other? Give both the same one of these:\n"
        "  a secret: `export WEIR_SECRET=$(openssl rand -hex 32)` on one machine and a copy of it on the other\n"
        "  --identity DIR: certificates that `weir identity issue` made\n"
        "  --development DIR: identities made up for tests, in a directory that both can read");
  }
}

void add_server(CLI::App& perf) {
  auto options = std::make_shared<PerfServerOptions>();
  CLI::App* command = perf.add_subcommand("server", "Answer the calls of `weir perf client` until Ctrl-C");
  command->add_option("--listen", options->listen, "Address to serve, such as 0.0.0.0:4433 (port 0: any)")
      ->required()
      ->type_name("ADDR");
  add_common(*command, *options);
  add_idle(*command, options->idle, "adaptive");
  command->add_option("--workers", options->workers, "Worker threads, with --mode threads")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "End after this time (default: when told to)")
      ->check(CLI::Range(0.01, 1e9))
      ->type_name("S");
  command->callback([options] {
    choose_security(*options);
    run_perf_server(*options);
  });
}

void add_client(CLI::App& perf) {
  auto options = std::make_shared<PerfClientOptions>();
  CLI::App* command = perf.add_subcommand("client", "Keep calls outstanding to servers and measure");
  command->add_option("--peer", options->peers, "Servers to call, in turn, separated by commas")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ADDR[,ADDR...]");
  command->add_option("--name", options->name, "What the servers' certificates must prove (default: their addresses)")
      ->type_name("NAME");
  command->add_option("--window", options->window, "Calls outstanding at a time")
      ->check(CLI::Range(1u, 1u << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--size", options->request_bytes, "Bytes of a request")
      ->check(CLI::Range(0u, kMaxBodyBytes))
      ->type_name("BYTES")
      ->capture_default_str();
  command->add_option("--reply", options->reply_bytes, "Bytes of a reply")
      ->check(CLI::Range(0u, kMaxBodyBytes))
      ->type_name("BYTES")
      ->capture_default_str();
  CLI::Option* seconds = command->add_option("--seconds", options->seconds, "How long to measure")
                             ->check(CLI::Range(0.01, 1e9))
                             ->type_name("S")
                             ->capture_default_str();
  command->add_option("--count", options->count, "Measure this many calls instead of a time")
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
  add_common(*command, *options);
  CLI::Option* idle = add_idle(*command, options->idle, "spin inline, adaptive with threads");
  command->callback([options, idle] {
    choose_security(*options);
    if (!options->name.empty() && options->identity.empty()) fail("--name has a meaning only with --identity");
    if (idle->empty()) options->idle = options->mode == Mode::inline_loop ? Idle::spin : Idle::adaptive;
    run_perf_client(*options);
  });
}

}  // namespace

Config to_config(const PerfOptions& options, std::shared_ptr<Witness> witness) {
  Config config;
  config.secret = options.secret;
  if (const std::string& folder = options.identity; !folder.empty()) {
    config.identity = Identity::from_files(folder + "/node.crt", folder + "/node.key", folder + "/ca.crt");
  } else if (options.development) {
    config.identity = Identity::development(*options.development);
  }
  config.workers = options.mode == Mode::threads ? options.workers : 0;
  config.idle = options.idle;
  config.executor_threads = 0;  // whoever serves here serves inline
  if (options.mtu != 0) config.datagram_bytes = static_cast<std::size_t>(options.mtu - ip_and_udp_bytes(options.is_v6));
  config.portable_link = options.portable_link;
  config.openssl_aead = options.openssl;
  config.subscriber = std::move(witness);
  if (options.core >= 0) {
    // Worker threads inherit it.
    if (auto pinned = pin_to_core(options.core); !pinned) note(pinned.error().message());
  }
  return config;
}

void add_perf_command(CLI::App& app) {
  CLI::App* perf = app.add_subcommand("perf", "Measure calls between two processes or machines");
  perf->require_subcommand(1);
  perf->footer(
      "Example, on one machine:\n"
      "  export WEIR_SECRET=$(openssl rand -hex 32)\n"
      "  weir perf server --listen 127.0.0.1:4433 --core 0 --idle spin &\n"
      "  weir perf client --peer 127.0.0.1:4433 --core 1 --window 1024\n"
      "The same with made-up identities: no secret, and --development ./development on both sides.");
  add_server(*perf);
  add_client(*perf);
}

}  // namespace weir::command
