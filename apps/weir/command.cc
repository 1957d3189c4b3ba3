#include "apps/weir/command.h"

#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <algorithm>
#include <cstdio>

#include "apps/weir/json.h"
#include "apps/weir/path.h"
#include "crypto/aead.h"

namespace weir::command {

namespace {
// A path that changes its mind all the time must not make us grow.
constexpr std::size_t kMaxDegradations = 16;
constexpr std::string_view kInAProgram = "use Identity::from_files()";
bool failures_as_json = false;  // of the one command that this process runs

// `text`: the sentence as a terminal may see it. A JSON string can hold the sentence itself.
[[noreturn]] void tell_and_end(std::string_view sentence, std::string_view text, int exit_code) {
  if (failures_as_json) fmt::print("{}\n", JsonObject().add("error", sentence).text());
  std::fflush(stdout);
  fmt::print(stderr, "weir: {}\n", text);
  throw CLI::RuntimeError(exit_code);
}
}  // namespace

void fail(std::string_view sentence, int exit_code) {
  // It may have a peer's words in it; only our own sentences have several lines.
  std::string text;
  std::string_view rest = sentence;
  for (std::size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
    text += printable(rest.substr(0, end)) + '\n';
  }
  tell_and_end(sentence, text + printable(rest), exit_code);
}

int exit_code_of(const Error& error) { return error.code() == Code::invalid_argument ? kMisused : kFailed; }
void fail(const Error& error) {
  const std::string sentence = error.to_string();
  tell_and_end(sentence, printable(sentence), exit_code_of(error));
}
void fail_use(std::string_view sentence) { fail(sentence, kMisused); }
void tell_failures_as_json(bool wanted) { failures_as_json = wanted; }

std::string with_address(std::string_view address, std::string_view sentence) {
  if (sentence.starts_with(address)) return std::string(sentence);
  std::string rest(sentence);
  for (const std::string_view word : {" from ", " at "}) {
    const std::string again = fmt::format("{}{}", word, address);
    if (rest.ends_with(again)) rest.resize(rest.size() - again.size());
  }
  return fmt::format("{}: {}", address, rest);
}

void note(std::string_view sentence) { fmt::print(stderr, "note: {}\n", sentence); }

void Witness::on(const event::MtuChanged& changed) {
  std::uint32_t seen = datagram_bytes_.load(std::memory_order_relaxed);
  while (changed.datagram_bytes > seen &&
         !datagram_bytes_.compare_exchange_weak(seen, changed.datagram_bytes, std::memory_order_relaxed)) {
  }
}

void Witness::on(const event::Degraded& degraded) {
  std::lock_guard lock(mutex_);
  std::string sentence(degraded.sentence);
  // Who gives commands has options, not functions.
  if (const std::size_t at = sentence.find(kInAProgram); at != sentence.npos) {
    sentence.replace(at, kInAProgram.size(), "use --identity");
  }
  if (degradations_.size() < kMaxDegradations && std::ranges::find(degradations_, sentence) == degradations_.end()) {
    degradations_.push_back(std::move(sentence));
  }
}

std::vector<std::string> Witness::degradations() const {
  std::lock_guard lock(mutex_);
  return degradations_;
}

std::string aes_in_use(bool openssl_wanted) {
  for (const crypto::BackendInfo& info : crypto::available_backends()) {
    if (openssl_wanted && info.backend == crypto::Backend::openssl) return info.detail;
  }
  return crypto::default_backend().detail;
}

}  // namespace weir::command
