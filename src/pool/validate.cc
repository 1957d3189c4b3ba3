#include "pool/validate.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/config.h"
#include "engine/waiting_requests.h"
#include "handshake/offer.h"
#include "link/link.h"
#include "peer/handshake_plan.h"
#include "peer/secret_map.h"
#include "schedule/nic_shaper.h"
#include "weir/pool.h"

namespace weir::pool {
namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }

struct Bound {
  std::string name;
  std::uint64_t value;
  std::uint64_t least;
  std::uint64_t most;
};

Result<void> check(const Bound& bound) {
  if (bound.value >= bound.least && bound.value <= bound.most) return {};
  return std::unexpected(Error(Code::invalid_argument, bound.name + " must be between " + number(bound.least) +
                                                           " and " + number(bound.most) + ", not " +
                                                           number(bound.value)));
}

constexpr std::chrono::hours kLongest{365 * 24};

Result<void> check_duration(const char* name, std::chrono::nanoseconds value) {
  if (value > std::chrono::nanoseconds::zero() && value <= kLongest) return {};
  return std::unexpected(
      Error(Code::invalid_argument, std::string(name) + " must be longer than zero and at most 365 days"));
}

Error refuse(std::string sentence) { return {Code::invalid_argument, std::move(sentence)}; }

}  // namespace

Result<void> validate(const Config& config) {
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 40;
  constexpr std::size_t kMostNicName = 64;
  constexpr std::size_t kMostInline = 60'000;  // with its frame it fits into the largest message block
  const Limits& limits = config.limits;

  if (config.identity.is_set()) {
    if (!config.secret.empty()) return std::unexpected(refuse("give either an identity or a secret, not both"));
    if (!config.name.empty()) return std::unexpected(refuse("with an identity, its certificate names the process"));
  } else if (config.secret.empty()) {
    return std::unexpected(
        refuse("give an identity (Identity::development() to begin with) or a secret that all pools share"));
  } else if (config.secret.size() < crypto::SharedSecret::kMinBytes) {
    return std::unexpected(refuse("secret must have at least 16 bytes, not " + number(config.secret.size()) +
                                  ": it is all that keeps strangers out"));
  }
  if (config.name.size() > engine::kMaxNameBytes) {
    return std::unexpected(refuse("name must have at most 64 bytes, not " + number(config.name.size())));
  }
  if (config.data_port != 0 && !config.identity.is_set()) {
    return std::unexpected(refuse("data_port needs an identity; with a secret, calls arrive where the pool listens"));
  }
  if (config.data_port + std::max(config.workers, 1) > 65'536) {
    return std::unexpected(refuse("there are not as many ports from data_port on as there are workers"));
  }
  if (config.identity.is_set() && config.workers > static_cast<int>(handshake::Offer::kMaxWorkers)) {
    return std::unexpected(refuse("with an identity there can be at most 64 workers"));
  }
  if (config.on != nullptr && config.on->state() == nullptr) {
    return std::unexpected(refuse("on names Workers that were moved from"));
  }
  if (config.workers < 0) return std::unexpected(refuse("workers must not be negative; 0 means that you call poll()"));
  if (config.executor_threads < 0) return std::unexpected(refuse("executor_threads must not be negative"));
  if ((config.buffers.memory == BufferMemory::files) == config.buffers.directory.empty()) {
    return std::unexpected(refuse("buffers.directory is for buffers in files, and these need one"));
  }
  if (config.buffers.touch && config.buffers.memory != BufferMemory::pages &&
      config.buffers.memory != BufferMemory::huge_pages) {
    return std::unexpected(refuse("buffers.touch is for buffers in pages"));
  }
  if (config.watchdog < std::chrono::nanoseconds::zero()) {
    return std::unexpected(refuse("watchdog must not be negative; 0 turns it off"));
  }
  if (config.watchdog > kLongest) return std::unexpected(refuse("watchdog must be at most 365 days; 0 turns it off"));

  if (config.nic_bits_per_s != 0 && (config.nic_bits_per_s < 8 * schedule::NicShaper::kLeastRate ||
                                     config.nic_bits_per_s > 8 * schedule::NicShaper::kMostRate)) {
    return std::unexpected(
        refuse("nic_bits_per_s must be 0 or between 8000 and 1000000000000, not " + number(config.nic_bits_per_s)));
  }
  if (config.nic.size() > kMostNicName) {
    return std::unexpected(refuse("nic must have at most 64 bytes, not " + number(config.nic.size())));
  }
  if (!config.nic.empty() && config.nic_bits_per_s == 0) {
    return std::unexpected(refuse("nic names what nic_bits_per_s is the rate of; give both"));
  }

  std::vector<Bound> bounds = {
      {"executor_threads", static_cast<std::uint64_t>(config.executor_threads), 0, 1'024},
      {"datagram_bytes", config.datagram_bytes, 1'200, 65'507},
      {"socket_buffer_bytes", config.socket_buffer_bytes, 64 * 1024, std::uint64_t{1} << 30},
      {"limits.inline_bytes", limits.inline_bytes, 64, kMostInline},
      {"limits.calls_per_peer", limits.calls_per_peer, 1, 1u << 20},
      {"limits.queued_calls", limits.queued_calls, 1, 1u << 28},
      {"limits.peers", limits.peers, 1, 1u << 20},
      {"limits.request_bytes_per_peer", limits.request_bytes_per_peer, 2 * limits.inline_bytes, kLarge},
      {"limits.request_bytes", limits.request_bytes, 2 * limits.inline_bytes, kLarge},
      {"limits.nested_request_bytes", limits.nested_request_bytes, 2 * limits.inline_bytes, kLarge},
      // Every level of nesting has a part of its own, which must hold an answer or two.
      {"limits.answer_bytes", limits.answer_bytes,
       token::AnswerRoom::least(engine::answer_bytes_of(limits.inline_bytes + 2)), kLarge},
      {"limits.reply_bytes", limits.reply_bytes, limits.inline_bytes, kLarge},
      {"limits.message_bytes", limits.message_bytes, limits.inline_bytes, kLarge},
      {"limits.large_request_bytes", limits.large_request_bytes, limits.inline_bytes, kLarge},
      {"limits.nested_large_request_bytes", limits.nested_large_request_bytes, limits.inline_bytes, kLarge},
      {"limits.large_reply_bytes", limits.large_reply_bytes, limits.inline_bytes, kLarge},
      {"limits.large_bytes_per_peer", limits.large_bytes_per_peer, limits.inline_bytes, kLarge},
      {"limits.buffer_bytes", limits.buffer_bytes, 0, kLarge},
      {"buffers.keep_bytes", config.buffers.keep_bytes, 0, kLarge},
      {"limits.receive_buffers", limits.receive_buffers, 2 * link::kReceiveBuffers, 1u << 24},
      {"limits.executor_queue", limits.executor_queue, 1, 1u << 30},
      {"limits.credentials", limits.credentials, 1, peer::SecretMap::kMaxCapacity},
      {"limits.handshakes_out", limits.handshakes_out, 1, 1u << 16},
      {"limits.handshakes_in", limits.handshakes_in, 1, 1u << 20},
  };
  for (std::size_t priority = 0; priority < 8; ++priority) {
    bounds.push_back(
        {"limits.submission_ring[" + number(priority) + "]", limits.submission_ring[priority], 1, 1u << 24});
  }
  for (const Bound& bound : bounds) {
    if (Result<void> checked = check(bound); !checked) return checked;
  }
  if (limits.request_bytes_per_peer > limits.request_bytes) {
    return std::unexpected(refuse("limits.request_bytes_per_peer must not be more than limits.request_bytes"));
  }
  // A message is taken only if all of it fits, so that it never waits for memory that it holds itself.
  const std::pair<const char*, std::size_t> rooms[] = {
      {"limits.large_request_bytes", limits.large_request_bytes},
      {"limits.nested_large_request_bytes", limits.nested_large_request_bytes},
      {"limits.large_reply_bytes", limits.large_reply_bytes},
      {"limits.large_bytes_per_peer", limits.large_bytes_per_peer},
  };
  for (const auto& [name, bytes] : rooms) {
    if (bytes >= limits.message_bytes) continue;
    return std::unexpected(refuse(std::string(name) + " is " + number(bytes) +
                                  " and has to hold a message of limits.message_bytes, which is " +
                                  number(limits.message_bytes) + ": raise the one or lower the other"));
  }
  const std::pair<const char*, std::chrono::nanoseconds> durations[] = {
      {"timeouts.default_deadline", config.timeouts.default_deadline},
      {"timeouts.silence", config.timeouts.silence},
      {"timeouts.keepalive", config.timeouts.keepalive},
      {"timeouts.connect", config.timeouts.connect},
      {"timeouts.idle_peer", config.timeouts.idle_peer},
      {"timeouts.handshake", config.timeouts.handshake},
      {"timeouts.credential", config.timeouts.credential},
  };
  for (const auto& [name, value] : durations) {
    if (Result<void> checked = check_duration(name, value); !checked) return checked;
  }
  if (config.timeouts.credential < peer::HandshakePlan::kShortestPeriod) {
    return std::unexpected(refuse("timeouts.credential must be at least 100 ms"));
  }
  return {};
}

}  // namespace weir::pool
