#include "weir_host.h"

#include <ns3/node.h>
#include <ns3/simulator.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "buffer/open.h"
#include "buffer/seal.h"
#include "weir/method.h"

namespace weir::bench {
namespace {

using namespace std::chrono_literals;

constexpr Method kMethod = "burst";
constexpr std::uint16_t kPort = 4433;
constexpr Duration kStart = 1s;  // what a worker's clock shows when the simulation begins
// A worker looks at its socket so long after something arrived, and again so long after a poll that left work over.
constexpr Duration kPollDelay = 1us;
constexpr Duration kDeadline = 60s;
constexpr std::uint32_t kSendBufferBytes = 256u << 10;

Instant now() { return Instant{ns3::Simulator::Now().GetNanoSeconds()} + kStart; }

// Of a call that failed.
std::string describe(const transfer::Outcome& outcome) {
  if (!outcome.failed) return "a wrong reply";
  const std::string said(reinterpret_cast<const char*>(outcome.bytes.data()), outcome.bytes.size());
  return std::string(name(outcome.code)) + ": " + outcome.sentence + said;
}

std::uint64_t seed_of(std::uint64_t run, HostId host, std::uint64_t purpose) {
  return Random(run * 1'000'003 + (std::uint64_t{host} << 8 | purpose)).next();
}

}  // namespace

ns3::TypeId WeirHost::GetTypeId() {
  static ns3::TypeId id = ns3::TypeId("weir::bench::WeirHost").SetParent<BurstHost>();
  return id;
}

WeirHost::WeirHost(const Options& options)
    : options_(options),
      entropy_(seed_of(options.seed, options.host, 1)),
      data_keys_(seed_of(options.seed, options.host, 2)),
      request_(options.messages.request_bytes, std::byte{'q'}),
      reply_(options.messages.reply_bytes, std::byte{'r'}) {}

WeirHost::~WeirHost() = default;

engine::EngineConfig WeirHost::config() {
  engine::EngineConfig config{.secret = crypto::SharedSecret::from_text("a burst in a network of ns-3").value()};
  config.name = "host" + std::to_string(options_.host);
  config.port = kPort;
  config.accepts = true;
  config.receive_buffer_bytes = options_.receive_buffer_bytes;
  config.memory = &landings_;
  config.opens_arrivals = true;
  config.timeouts.default_deadline = kDeadline;
  return config;
}

void WeirHost::StartApplication() {
  link_ = std::make_unique<SocketLink>(GetNode(), options_.card_queue,
                                       SocketLink::Options{.port = kPort,
                                                           .receive_buffer_bytes = options_.receive_buffer_bytes,
                                                           .send_buffer_bytes = kSendBufferBytes,
                                                           .bits_per_second = options_.bits_per_second},
                                       [this] { poll_at(now() + kPollDelay); });
  engine_ =
      std::make_unique<engine::Engine>(config(), entropy_, nullptr, seed_of(options_.seed, options_.host, 3), now());
  seat_ = std::make_unique<worker::Seat>(*engine_, *link_, burst_);
  const auto served = engine_->serve(kMethod.id(), kMethod.name(), {.run = run, .context = this});
  WEIR_CHECK(served.has_value(), "an engine that has just begun serves anything");
}

void WeirHost::DoDispose() {
  next_poll_.Cancel();
  seat_.reset();
  engine_.reset();
  link_.reset();
  for (Call& call : calls_) {
    if (!call.has_ended) call.outgoing.drop_bytes();
  }
  calls_.clear();
  BurstHost::DoDispose();
}

// ---- callers -------------------------------------------------------------------------------------------------------

std::uint32_t WeirHost::peer(HostId host) {
  const auto [known, is_new] = peers_.try_emplace(host);
  if (is_new) known->second = engine_->connect(Address::v4(address_of(host).Get(), kPort)).value();
  return known->second;
}

void WeirHost::call(const std::vector<HostId>& callees) {
  calls_.clear();
  for (const HostId callee : callees) submit(calls_.emplace_back(), callee);
  poll_at(now());
}

void WeirHost::submit(Call& call, HostId callee) {
  call.host = this;
  call.has_ended = false;
  call.outgoing.complete = &complete;
  call.outgoing.method = kMethod.id();
  call.outgoing.deadline = now() + kDeadline;
  call.outgoing.peer = peer(callee);
  load(call.outgoing);
  engine_->submit(call.outgoing, now());
}

// The request's bytes, where the engine wants them.
void WeirHost::load(transfer::OutgoingCall& outgoing) {
  if (request_.size() > engine::EngineConfig{}.limits.inline_bytes) {
    crypto::KeyBytes key;
    data_keys_.fill(key);
    buffer::Sealed* const sealed = buffer::seal(payloads_, request_, key, buffer::thread_key());
    WEIR_CHECK(sealed != nullptr, "there is memory for the payloads of a round");
    outgoing.is_large = true;
    outgoing.block = transfer::load_cargo(engine_->blocks(), sealed, {.bytes = request_.size()}, Pattern::unary, {});
    outgoing.bytes = wire::kCargoBytes;
    return;
  }
  outgoing.bytes = static_cast<std::uint32_t>(request_.size());
  std::byte* bytes = outgoing.inline_bytes;
  if (request_.size() > transfer::OutgoingCall::kInlineBytes) {
    outgoing.block = engine_->blocks().acquire(request_.size());
    bytes = outgoing.block->bytes();
  }
  std::ranges::copy(request_, bytes);
}

void WeirHost::complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome) {
  Call& call = reinterpret_cast<Call&>(outgoing);
  call.has_ended = true;
  const bool is_right = !outcome.failed && std::ranges::equal(outcome.bytes, call.host->reply_);
  call.host->on_end(is_right ? std::string{} : describe(outcome));
}

// ---- callees -------------------------------------------------------------------------------------------------------

void WeirHost::run(void* context, transfer::IncomingTransfer& request, Instant at) {
  auto& host = *static_cast<WeirHost*>(context);
  ByteSpan body{request.delivery.request, request.bytes};
  if (buffer::Landing* const landing = request.landing()) {
    body = buffer::open_all(*landing) ? landing->whole() : ByteSpan{};
  }
  if (std::ranges::equal(body, host.request_)) {
    host.engine_->reply(request, {}, host.reply_, at);
  } else {
    host.engine_->fail(request, Code::invalid_argument, "not a request of this run", at);
  }
}

// ---- turns ---------------------------------------------------------------------------------------------------------

void WeirHost::poll_at(Instant when) {
  if (when >= next_poll_at_) return;
  next_poll_.Cancel();
  next_poll_at_ = when;
  const Duration wait = std::max(when - now(), Duration{0});
  next_poll_ = ns3::Simulator::Schedule(ns3::NanoSeconds(wait.count()), [this] { poll(); });
}

void WeirHost::poll() {
  next_poll_at_ = Instant::never();
  seat_->poll_once(now());
  const Instant soon = now() + kPollDelay;
  if (seat_->is_blocked()) poll_at(std::max(now() + link_->drain_time(), soon));
  if (link_->has_arrivals()) poll_at(soon);
  poll_at(std::max(seat_->next_deadline(), soon));
}

}  // namespace weir::bench
