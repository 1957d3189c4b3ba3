#include "sim/fabric_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "buffer/holds.h"
#include "buffer/seal.h"
#include "schedule/nic_shaper.h"
#include "sim/random_stream.h"
#include "transfer/cargo.h"
#include "weir/method.h"

namespace weir::sim {
namespace {

constexpr std::string_view kSecret = "hosts of one simulated fabric";
constexpr std::size_t kReceiveBufferBytes = 16u << 20;  // what a socket is given by default
constexpr std::uint32_t kNoPeer = ~std::uint32_t{0};
constexpr std::size_t kInlineBytes = Limits{}.inline_bytes;

}  // namespace

// ---- payloads ------------------------------------------------------------------------------------------------------

FabricPayload::FabricPayload(const CallKind& kind, transfer::BlockPool& blocks, buffer::Memory& memory,
                             std::uint64_t seed)
    : kind_(kind), method_(Method(kind.name).id()), reply_(kind.reply_bytes) {
  WEIR_CHECK(kind.reply_bytes <= kInlineBytes, "replies of this load travel inline");
  if (kind.request_bytes > kInlineBytes) {
    crypto::KeyBytes key;
    SeededEntropy(stream_seed(seed, "fabric payload")).fill(key);
    sealed_ = buffer::seal(memory, std::vector<std::byte>(kind.request_bytes), key, buffer::thread_key());
    WEIR_CHECK(sealed_ != nullptr, "there is memory for one payload");
  } else if (kind.request_bytes > transfer::OutgoingCall::kInlineBytes) {
    block_ = blocks.acquire(kind.request_bytes);
    std::fill_n(block_->bytes(), kind.request_bytes, std::byte{1});
  }
}

FabricPayload::~FabricPayload() {
  if (block_ != nullptr) detail::unpin(block_);
  if (sealed_ != nullptr) buffer::give_back(sealed_, transfer::pieces_of(*sealed_, {.bytes = sealed_->bytes}));
}

void FabricPayload::load(transfer::OutgoingCall& call, transfer::BlockPool& blocks) const {
  call.method = method_;
  call.priority = kind_.priority;
  call.bytes = kind_.request_bytes;
  if (sealed_ != nullptr) {
    const transfer::CargoRange all{.bytes = sealed_->bytes};
    buffer::Sealed* const lent = buffer::lend(*sealed_, transfer::pieces_of(*sealed_, all));
    call.is_large = true;
    call.block = transfer::load_cargo(blocks, lent, all, Pattern::unary, {});
    call.bytes = static_cast<std::uint32_t>(wire::kCargoBytes);
  } else if (block_ != nullptr) {
    detail::pin(block_);
    call.block = block_;
  } else {
    std::fill_n(call.inline_bytes, kind_.request_bytes, std::byte{1});
  }
}

// ---- hosts ---------------------------------------------------------------------------------------------------------

engine::EngineConfig FabricHost::config_of(const Shared& shared, HostId id) {
  engine::EngineConfig config{.secret = crypto::SharedSecret::from_text(kSecret).value()};
  config.name = fmt::format("host{}", id);
  config.port = Fabric::kUdpPort;
  config.accepts = true;
  config.receive_buffer_bytes = kReceiveBufferBytes;
  config.memory = &shared.memory;
  const FabricShape& shape = shared.fabric.shape();
  if (shape.tells_rate) {
    config.nic = std::make_shared<schedule::NicShaper>(shape.bits_per_second / 8, shared.fabric.now());
  }
  return config;
}

FabricHost::FabricHost(const Shared& shared, HostId id)
    : shared_(shared),
      id_(id),
      entropy_(stream_seed(shared.fabric.shape().seed, "fabric entropy", id)),
      link_(shared.fabric, id, kReceiveBufferBytes),
      engine_(config_of(shared, id), entropy_, nullptr, stream_seed(shared.fabric.shape().seed, "fabric engine", id),
              shared.fabric.now()),
      seat_(engine_, link_, shared.burst, this),
      peers_(shared.fabric.shape().hosts, kNoPeer) {
  shared_.fabric.attach(id, this);
  for (const auto& payload : shared_.payloads) services_.push_back({.host = this, .payload = payload.get()});
  for (Service& service : services_) {
    const auto served = engine_.serve(service.payload->method(), service.payload->kind().name,
                                      {.run = run_request, .context = &service});
    WEIR_CHECK(served.has_value(), "a host that has just started serves anything");
  }
}

FabricCalls::~FabricCalls() {
  for (std::size_t i = 0; i < count; ++i) {
    if (calls[i].is_under_way) calls[i].outgoing.drop_bytes();
  }
}

void FabricHost::load(std::span<const PlannedCall> plan, Instant start) {
  WEIR_CHECK(under_way_ == 0 && next_call_ == plan_.size(), "one plan is over before the next one begins");
  plan_ = plan;
  start_ = start;
  next_call_ = 0;
  calls_ = std::make_unique<FabricCalls>(plan.size());
  if (!plan.empty()) poll_at(start + plan.front().at);
}

void FabricHost::poll_at(Instant when) {
  when = std::max({when, last_poll_ + kFabricPollInterval, shared_.fabric.now()});
  Agenda& agenda = shared_.fabric.agenda();
  if (when < agenda.when(id_)) agenda.set(id_, when);
}

bool FabricHost::drain(Instant now) {
  const std::size_t before = next_call_;
  while (next_call_ < plan_.size() && start_ + plan_[next_call_].at <= now) {
    const std::size_t index = next_call_++;
    start(calls_->calls[index], plan_[index], now);
  }
  return next_call_ != before;
}

void FabricHost::start(FabricCall& call, const PlannedCall& planned, Instant now) {
  std::uint32_t& peer = peers_[planned.to];
  if (peer == kNoPeer) peer = engine_.connect(Fabric::address_of(planned.to)).value();
  call.host = this;
  call.started = start_ + planned.at;
  call.kind = planned.kind;
  call.is_under_way = true;
  ++under_way_;
  call.outgoing.complete = &complete;
  call.outgoing.peer = peer;
  call.outgoing.deadline = now + Timeouts{}.default_deadline;
  shared_.payloads[planned.kind]->load(call.outgoing, engine_.blocks());
  engine_.submit(call.outgoing, now);
}

void FabricHost::complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome) {
  FabricCall& call = reinterpret_cast<FabricCall&>(outgoing);
  call.is_under_way = false;
  --call.host->under_way_;
  call.host->shared_.judge.on_complete(call, outcome);
}

void FabricHost::run_request(void* context, transfer::IncomingTransfer& request, Instant now) {
  const Service& service = *static_cast<Service*>(context);
  service.host->shared_.judge.on_request(service.payload->kind());
  service.host->engine_.reply(request, {}, service.payload->reply(), now);
}

void FabricHost::poll() {
  const Instant now = shared_.fabric.now();
  last_poll_ = now;
  const std::uint64_t control = engine_.events().counters.packets_control_only;
  seat_.poll_once(now);
  link_.count_control(engine_.events().counters.packets_control_only - control);
  if (next_call_ < plan_.size()) poll_at(start_ + plan_[next_call_].at);
  if (seat_.is_blocked()) poll_at(link_.writable_at());
  const Instant arrival = shared_.fabric.next_arrival(id_);
  if (!arrival.is_never()) expect(arrival);
  const Instant deadline = seat_.next_deadline();
  if (!deadline.is_never()) poll_at(deadline);
}

}  // namespace weir::sim
