// How long a restarted server is of no use to its client: a server process is killed and started again, over and over,
// under a client that makes one call after the other.
//
// restart [--restarts N] [--workers N] [--absence MS] [--pause MS] [--identity] [--signer-file]
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "bench/handshake/identities.h"
#include "weir/weir.h"

namespace weir::bench {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

struct Options {
  int restarts = 52;
  int workers = 1;
  int absence_ms = 0;
  int pause_ms = 1'000;  // between restarts: a client begins at most one handshake per second for long (rule R-5)
  bool identity = false;
  bool signer_file = false;
  std::string signer;  // the file's path
  Identities certificates{};
};

Config common_config(const Options& options, const handshake::Issued& issued) {
  Config config;
  if (options.identity) {
    config.identity = Identity::from_pem(issued.chain_pem, issued.key_pem, options.certificates.roots);
  } else {
    config.secret = "a secret that only this benchmark knows";
  }
  return config;
}

// A process that starts servers, each a process of its own, and kills them. Made before there are threads, so that
// forking is safe.
class Servers {
 public:
  Servers(const Options& options, std::uint16_t port) {
    if (::pipe(orders_) != 0 || ::pipe(answers_) != 0) std::abort();
    starter_ = ::fork();
    if (starter_ == 0) obey(options, port);
  }
  ~Servers() {
    ::close(orders_[1]);
    ::waitpid(starter_, nullptr, 0);
  }
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;

  void kill() { order('k'); }
  void start() { order('s'); }  // returns when it listens

 private:
  void order(char what) {
    char answer = 0;
    if (::write(orders_[1], &what, 1) != 1 || ::read(answers_[0], &answer, 1) != 1 || answer != 'y') {
      fmt::print(stderr, "error: the server did not start\n");
      std::_Exit(1);
    }
  }
  [[noreturn]] void obey(const Options& options, std::uint16_t port) {
    ::close(orders_[1]);
    pid_t child = 0;
    const auto end_child = [&child] {
      if (child == 0) return;
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      child = 0;
    };
    char what = 0;
    while (::read(orders_[0], &what, 1) == 1) {
      end_child();
      if (what == 'k') {
        tell('y');
      } else if ((child = ::fork()) == 0) {
        serve(options, port);
      }
    }
    end_child();
    std::_Exit(0);
  }
  [[noreturn]] void serve(const Options& options, std::uint16_t port) {
    Config config = common_config(options, options.certificates.server);
    config.listen = fmt::format("127.0.0.1:{}", port);
    config.data_port = options.identity ? static_cast<std::uint16_t>(port + 1) : std::uint16_t{0};
    config.workers = options.workers;
    if (options.signer_file) config.identity = config.identity.signer_file(options.signer);
    Result<Pool> pool = Pool::open(config);
    if (!pool) {
      fmt::print(stderr, "error: {}\n", pool.error().message());
      tell('n');
      std::_Exit(1);
    }
    (void)pool->serve_inline("echo", [](InlineRequest& request) { request.reply(request.body()); });
    tell('y');
    for (;;) ::pause();
  }
  void tell(char what) { static_cast<void>(!::write(answers_[1], &what, 1)); }

  int orders_[2] = {-1, -1};
  int answers_[2] = {-1, -1};
  pid_t starter_ = -1;
};

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

struct Outage {
  double milliseconds = 0;  // from the time when the server listens to the first reply
  int failed = 0;           // calls that were made from then on, and failed
};

// Calls every millisecond until one was answered.
Outage await_reply(const Peer& peer) {
  const Clock::time_point start = Clock::now();
  Outage outage;
  while (!peer.unary("echo", "x", {.deadline = 10s}).get()) {
    ++outage.failed;
    std::this_thread::sleep_for(1ms);
  }
  outage.milliseconds = milliseconds(Clock::now() - start);
  return outage;
}

void report(const Options& options, std::vector<Outage> outages) {
  std::ranges::sort(outages, {}, &Outage::milliseconds);
  const auto at = [&](double share) {
    return outages[static_cast<std::size_t>(share * static_cast<double>(outages.size() - 1))].milliseconds;
  };
  int failed = 0, slow = 0;
  for (const Outage& outage : outages) {
    failed += outage.failed;
    slow += outage.milliseconds > 500 ? 1 : 0;
  }
  fmt::print(
      "{}{}, {} worker{}, absent for {} ms: {} restarts; until the first reply: median {:.1f} ms, 90 % {:.1f} ms, "
      "longest {:.1f} ms; {} took over 500 ms; {} calls failed\n",
      options.identity ? "identities" : "shared secret", options.signer_file ? " and signer file" : "", options.workers,
      options.workers == 1 ? "" : "s", options.absence_ms, outages.size(), at(0.5), at(0.9), at(1), slow, failed);
}

int measure(const Options& options) {
  const auto port = static_cast<std::uint16_t>(20'000 + ::getpid() % 20'000);
  Servers servers(options, port);
  const Config config = common_config(options, options.certificates.client);
  Result<Pool> client = Pool::open(config);
  if (!client) {
    fmt::print(stderr, "error: {}\n", client.error().message());
    return 1;
  }
  const Peer peer = client->peer(fmt::format("127.0.0.1:{}", port));
  servers.start();
  (void)await_reply(peer);
  std::vector<Outage> outages;
  for (int i = 0; i < options.restarts; ++i) {
    for (int call = 0; call < 20; ++call) (void)peer.unary("echo", "x").get();
    servers.kill();
    // Somebody always calls, also while there is no server.
    Call meanwhile = peer.unary("echo", "x", {.deadline = 10s});
    std::this_thread::sleep_for(std::chrono::milliseconds(options.absence_ms));
    servers.start();
    outages.push_back(await_reply(peer));
    (void)meanwhile.get();
    std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
  }
  report(options, std::move(outages));
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures how long a restarted server is of no use to its client");
  app.add_option("--restarts", options.restarts, "How often the server is killed")->check(CLI::Range(1, 100'000));
  app.add_option("--workers", options.workers, "Of the server")->check(CLI::Range(1, 64));
  app.add_option("--absence", options.absence_ms, "Milliseconds between its end and its start")
      ->check(CLI::Range(0, 60'000));
  app.add_option("--pause", options.pause_ms, "Milliseconds between a reply and the next end")
      ->check(CLI::Range(0, 60'000));
  app.add_flag("--identity", options.identity, "Certificates instead of a shared secret");
  app.add_flag("--signer-file", options.signer_file, "With identities: the server keeps its signer in a file");
  CLI11_PARSE(app, argc, argv);
  std::string directory = (std::filesystem::temp_directory_path() / "weir-restart-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) return 1;
  options.signer = directory + "/signer";
  if (options.identity) options.certificates = make_identities(handshake::KeyType::ed25519);
  const int result = measure(options);
  std::filesystem::remove_all(directory);
  return result;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) { return weir::bench::run(argc, argv); }
