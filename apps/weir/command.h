// What every command of `weir` shares: how it is added to the program, how it fails, and what it overhears.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "weir/error.h"
#include "weir/event.h"

namespace CLI {
class App;
}

namespace weir::command {

void add_perf_command(CLI::App& app);
void add_demo_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_identity_command(CLI::App& app);
void add_copy_commands(CLI::App& app);

// --nic-bandwidth, in bits per second.
void add_bandwidth(CLI::App& command, std::uint64_t& bits_per_s, const std::string& what);

// How a command that did not do what it was asked for ends.
inline constexpr int kFailed = 1;
inline constexpr int kMisused = 2;        // what it was asked for makes no sense
inline constexpr int kInterrupted = 130;  // as shells say it of a program that Ctrl-C ended

// A sentence to stderr, then the end of the program with this exit code.
[[noreturn]] void fail(std::string_view sentence, int exit_code = kFailed);
// invalid_argument is misuse.
[[noreturn]] void fail(const Error& error);
[[noreturn]] void fail_use(std::string_view sentence);
// From here on until it is called again a failure is told on stdout, too, as {"error": "..."}.
void tell_failures_as_json(bool wanted);
int exit_code_of(const Error& error);
// "127.0.0.1:4433: no answer": the address once and in front, also if the sentence names it.
std::string with_address(std::string_view address, std::string_view sentence);
// A sentence to stderr that changes nothing else.
void note(std::string_view sentence);

template <class T>
T value_or_fail(Result<T> result) {
  if (!result) fail(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Listens to a pool for what a user should be told. Called on worker threads, read by the command's own.
class Witness : public Subscriber {
 public:
  using Subscriber::on;
  void on(const event::MtuChanged& changed) override;
  void on(const event::Degraded& degraded) override;

  // The largest datagram that a path carried; 0 if no path was probed yet.
  std::uint32_t datagram_bytes() const { return datagram_bytes_.load(std::memory_order_relaxed); }
  // What works less well than it could, each sentence once.
  std::vector<std::string> degradations() const;

 private:
  std::atomic<std::uint32_t> datagram_bytes_{0};  // alone and never taken back, so no ordering is needed
  mutable std::mutex mutex_;
  std::vector<std::string> degradations_;
};

// Which AES-GCM this process uses, in words.
std::string aes_in_use(bool openssl_wanted);

}  // namespace weir::command
