#include "sim/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/random_stream.h"
#include "token/region_table.h"
#include "weir/method.h"

namespace weir::sim {
namespace {

constexpr Method kEcho = "sim.echo";
constexpr Method kNothing = "sim.nothing";
constexpr Duration kSlack{2'000'000};  // a deadline is kept this well by a worker that is awake
constexpr std::size_t kMaxHeaderBytes = 1'000;
constexpr std::uint64_t kBoundedEvery = 4;  // calls
constexpr auto kPoison = std::byte{0xdd};

// The engine's own part of a call.
MutableByteSpan engines_part(transfer::OutgoingCall& call) {
  auto* begin = reinterpret_cast<std::byte*>(&call.state);
  return {begin, reinterpret_cast<std::byte*>(&call + 1)};
}

}  // namespace

struct Workload::Serving {
  Workload* workload;
  HostId host;
  engine::Engine* engine;
};

struct Workload::Call {
  transfer::OutgoingCall outgoing;
  Workload* workload = nullptr;
  HostId host = 0;
  std::uint64_t id = 0;
  std::uint64_t parent = 0;
  engine::Engine* engine = nullptr;  // that it was submitted to
  bool is_chain = false;
  bool ended = false;
};

Workload::Workload(World& world, Checker& checker, const WorkloadShape& shape, Sabotage sabotage)
    : world_(world),
      checker_(checker),
      shape_(shape),
      sabotage_(sabotage),
      choices_(stream(world.seed, "workload")),
      sequels_(world, checker, hosts_, shape.sequels, sabotage == Sabotage::goes_on_early) {}

Workload::~Workload() = default;

void Workload::on_start(HostId host) {
  checker_.on_start(host);
  Site& site = sites_[host];
  site.serving.clear();
  site.busy_until = {};
  for (std::size_t which = 0; which < hosts_[host]->engines(); ++which) {
    engine::Engine& engine = hosts_[host]->engine(which);
    Serving* const serving = site.serving.emplace_back(std::make_unique<Serving>(Serving{this, host, &engine})).get();
    for (const auto& [method, run] : {std::pair{kEcho, &run_echo}, std::pair{kNothing, &run_nothing}}) {
      const auto served = engine.serve(method.id(), method.name(), {.run = run, .context = serving});
      if (!served) checker_.violation(fmt::format("host {} cannot serve: {}", host, served.error().message()));
    }
  }
  if (std::ranges::find(shape_.callers, host) == shape_.callers.end()) return;
  for (std::uint32_t i = 0; i < shape_.window; ++i) {
    hosts_[host]->run_at(world_.now() + between(choices_, Duration{0}, shape_.think_time),
                         [this, host] { chain(host); });
  }
}

void Workload::on_stop(HostId host) {
  sequels_.on_stop(host);
  Site& site = sites_[host];
  for (auto& [key, pending] : site.pending) {
    if (pending.pin != nullptr) detail::unpin(pending.pin);
  }
  site.pending.clear();
  for (detail::Pin* pin : site.kept) detail::unpin(pin);
  site.kept.clear();
  for (const auto& call : site.calls) {
    checker_.on_abandoned(call->id);
    // Lent to an engine that is gone.
    if (!call->ended) call->outgoing.drop_bytes();
  }
  site.calls.clear();
  checker_.on_stop(host);
}

bool Workload::quota_used_up() const {
  return std::ranges::all_of(shape_.callers, [this](HostId host) {
    const auto site = sites_.find(host);
    return site != sites_.end() && site->second.submitted >= shape_.calls_per_caller;
  });
}

bool Workload::is_untrusted(HostId host) const {
  if (shape_.lapsing == host && world_.now() >= shape_.lapses_at) return true;
  return std::ranges::find(shape_.untrusted, host) != shape_.untrusted.end();
}

bool Workload::may_lapse(HostId host) const {
  // The clocks of handshakes count whole seconds.
  constexpr Duration kClockStep = std::chrono::seconds(1);
  return shape_.lapsing == host && world_.now() + shape_.longest_delay + 2 * kClockStep >= shape_.lapses_at;
}

// ---- callers -------------------------------------------------------------------------------------------------------

void Workload::chain(HostId host) {
  if (stopped_ || sites_[host].submitted >= shape_.calls_per_caller) return;
  ++sites_[host].submitted;
  const std::uint64_t which = choices_.below(shape_.callees.size());
  HostId callee = shape_.callees[which];
  if (callee == host) callee = shape_.callees[(which + 1) % shape_.callees.size()];
  submit(host, {.callee = callee, .is_chain = true, .must_succeed = shape_.must_succeed});
}

void Workload::call_everybody(bool must_succeed) {
  for (HostId caller : shape_.callers) {
    for (HostId callee : shape_.callees) {
      if (caller != callee) submit(caller, {.callee = callee, .is_patient = true, .must_succeed = must_succeed});
    }
    hosts_[caller]->wake();
  }
}

Instruction Workload::choose(HostId host, const Wish& wish) {
  Instruction instruction;
  const double die = choices_.fraction();
  double sum = 0;
  const auto falls = [&](double share) { return die < (sum += share); };
  if (falls(shape_.nested)) {
    instruction.answer = Answer::nested;
    instruction.nested_host = shape_.callees[choices_.below(shape_.callees.size())];
    if (instruction.nested_host == wish.callee) instruction.answer = Answer::now;
  } else if (falls(shape_.later)) {
    instruction.answer = Answer::later;
    instruction.delay_us = static_cast<std::uint32_t>(
        choices_.below(static_cast<std::uint64_t>(shape_.longest_delay.count() / 1'000) + 1));
  } else if (falls(shape_.error)) {
    instruction.answer = Answer::error;
  }
  instruction.keeps_request = choices_.chance(0.5);
  instruction.depth = wish.depth;
  instruction.priority = static_cast<std::uint8_t>(choices_.below(8));

  const auto size = [&](std::size_t least) {
    constexpr std::size_t kLargest[] = {64, 64, 256, 1'024, 1'024, 4'096, 16'384, 1'600};
    const std::size_t largest = std::min(kLargest[choices_.below(std::size(kLargest))], shape_.largest_bytes);
    if (choices_.chance(0.02)) return static_cast<std::uint32_t>(shape_.largest_bytes);
    return static_cast<std::uint32_t>(between(choices_, least, largest));
  };
  instruction.bytes = size(Instruction::kBytes);
  instruction.reply_bytes = size(kReplyBytes);
  if (shape_.large > 0 && choices_.chance(shape_.large)) instruction.bytes = choose_large_bytes();
  if (shape_.large > 0 && choices_.chance(shape_.large)) instruction.reply_bytes = choose_large_bytes();
  switch (choices_.below(3)) {
    case 0:
      instruction.header_bytes = std::min<std::uint32_t>(Instruction::kBytes, instruction.bytes);
      break;
    case 1:
      instruction.header_bytes =
          static_cast<std::uint32_t>(choices_.below(std::min<std::size_t>(instruction.bytes, kMaxHeaderBytes) + 1));
      break;
    default:
      break;
  }
  if (!shape_.urgent.empty()) {
    const bool is_urgent = std::ranges::find(shape_.urgent, host) != shape_.urgent.end();
    instruction.priority = is_urgent ? kUrgentPriority : kBulkPriority;
    instruction.bytes = static_cast<std::uint32_t>(is_urgent ? 256 : shape_.largest_bytes);
    instruction.header_bytes = 0;
    instruction.reply_bytes = kReplyBytes;
  }
  if (shape_.exact_bytes != 0) {
    instruction.answer = Answer::now;
    instruction.bytes = shape_.exact_bytes;
    instruction.reply_bytes = shape_.exact_reply_bytes;
    instruction.header_bytes = 0;
    return instruction;
  }
  if (wish.depth == 0 && !wish.is_patient && choices_.chance(shape_.empty)) {
    instruction = {.priority = instruction.priority, .bytes = 0};
  }
  return instruction;
}

// Mostly just beyond the limit or a few records; now and then what fills many.
std::uint32_t Workload::choose_large_bytes() {
  constexpr std::size_t kLeast = 17 * 1024;
  constexpr std::size_t kLargest[] = {20'000, 64 * 1024, 64 * 1024, 200'000, 200'000, 1u << 20, 1u << 20, 8u << 20};
  const std::size_t largest = std::min(kLargest[choices_.below(std::size(kLargest))], shape_.largest_large_bytes);
  if (choices_.chance(0.1)) return buffer::kRecordBytes * static_cast<std::uint32_t>(between(choices_, 1, 4));
  return static_cast<std::uint32_t>(between(choices_, kLeast, std::max(kLeast, largest)));
}

bool Workload::is_large(HostId host, std::size_t bytes) const {
  return bytes > hosts_[host]->config().limits.inline_bytes;
}

// Some are sealed by the application itself.
buffer::Sealed* Workload::seal(HostId host, std::uint64_t id, ByteSpan body) {
  return id % 4 == 1 ? hosts_[host]->adopt(body) : hosts_[host]->seal(body, shape_.piece_bytes);
}

// The request's bytes, where the engine wants them.
void Workload::load(HostId host, engine::Engine& engine, transfer::OutgoingCall& outgoing,
                    const Instruction& instruction) {
  outgoing.bytes = instruction.bytes;
  outgoing.header_bytes = static_cast<std::uint16_t>(instruction.header_bytes);
  transfer::BlockPool& blocks = engine.blocks();
  if (is_large(host, instruction.bytes)) {
    std::vector<std::byte> text(instruction.bytes);
    write_request(text, instruction);
    const ByteSpan header = ByteSpan{text}.first(instruction.header_bytes);
    const ByteSpan body = ByteSpan{text}.subspan(instruction.header_bytes);
    outgoing.is_large = true;
    outgoing.block =
        transfer::load_cargo(blocks, seal(host, instruction.id, body), {.bytes = body.size()}, Pattern::unary, header);
    outgoing.bytes = static_cast<std::uint32_t>(wire::kCargoBytes + header.size());
    outgoing.header_bytes = 0;
    return;
  }
  std::byte* bytes = outgoing.inline_bytes;
  if (instruction.bytes > transfer::OutgoingCall::kInlineBytes) {
    outgoing.block = blocks.acquire(instruction.bytes);
    bytes = outgoing.block->bytes();
  }
  if (instruction.bytes != 0) write_request({bytes, instruction.bytes}, instruction);
}

void Workload::submit(HostId host, const Wish& wish) {
  const Instant now = world_.now();
  engine::Engine& engine = hosts_[host]->engine_to(*hosts_[wish.callee]);
  const auto peer = hosts_[host]->peer(*hosts_[wish.callee]);
  if (!peer) {
    checker_.violation(fmt::format("host {} cannot name host {}: {}", host, wish.callee, peer.error().message()));
    return;
  }
  CallRecord record;
  record.instruction = choose(host, wish);
  record.caller = host;
  record.caller_life = hosts_[host]->life();
  record.callee = wish.callee;
  record.submitted = now;
  record.must_be_refused = is_untrusted(host) || is_untrusted(wish.callee);
  record.must_succeed = wish.must_succeed && !record.must_be_refused && !may_lapse(host);
  record.may_be_freed = shape_.piece_bytes != 0 &&
                        std::max(record.instruction.bytes, record.instruction.reply_bytes) > token::kSmallestRange;
  Instant deadline = now + between(choices_, wish.is_patient ? shape_.longest_deadline : shape_.shortest_deadline,
                                   shape_.longest_deadline);
  record.latest_end = deadline;
  if (choices_.chance(shape_.without_deadline)) {
    record.latest_end = deadline = Instant::never();  // ends by a reply or because the peer is gone
  }
  if (wish.deadline < deadline) record.latest_end = deadline = std::max(wish.deadline, now);
  record.is_patient = !deadline.is_never() && shape_.patient_every != 0 && ++submitted_ % shape_.patient_every == 0;
  const std::uint64_t id = checker_.add(record);
  const Instruction& instruction = checker_.record(id).instruction;

  auto made = std::make_unique<Call>();
  Call& call = *made;
  sites_[host].calls.push_back(std::move(made));
  call.workload = this;
  call.host = host;
  call.id = id;
  call.engine = &engine;
  call.parent = wish.parent;
  call.is_chain = wish.is_chain;
  transfer::OutgoingCall& outgoing = call.outgoing;
  outgoing.complete = &complete;
  outgoing.method = instruction.bytes == 0 ? kNothing.id() : kEcho.id();
  outgoing.deadline = deadline;
  outgoing.peer = *peer;
  outgoing.priority = instruction.priority;
  outgoing.depth = instruction.depth;
  outgoing.is_patient = checker_.record(id).is_patient;
  // Some accept no larger reply than the one that they ask for.
  if (id % kBoundedEvery == 0 && instruction.bytes != 0) outgoing.max_reply = instruction.reply_bytes;
  load(host, engine, outgoing, instruction);
  world_.journal.note(now, "submit id caller callee bytes", {id, host, wish.callee, instruction.bytes});
  if (wish.is_chain) sequels_.tie(host, id, outgoing, choices_);
  engine.submit(outgoing, now);
  sequels_.arrive(id);
  if (!wish.is_patient) prepare_cancel(host, call);
}

void Workload::prepare_cancel(HostId host, Call& call) {
  if (!choices_.chance(shape_.cancelled)) return;
  const Duration delay = choices_.chance(0.3) ? Duration{0} : between(choices_, Duration{0}, Duration{1'000'000});
  hosts_[host]->run_at(world_.now() + delay, [this, target = &call] {
    if (target->ended) return;
    world_.journal.note(world_.now(), "cancel id", {target->id});
    checker_.on_cancel(target->id);
    target->engine->cancel(target->outgoing, world_.now());
  });
}

// What was freed cannot be written again when its region is taken back, which its receiver does: the callee a
// request's, the caller a reply's.
bool Workload::has_lost_pieces(const CallRecord& record, Code code) const {
  const auto takes_back = [this](HostId host) {
    return hosts_[host]->is_up() && hosts_[host]->engine().events().counters.regions_revoked != 0;
  };
  return record.may_be_freed && ((code == Code::overloaded && takes_back(record.callee)) ||
                                 (code == Code::reset && takes_back(record.caller)));
}

void Workload::complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome) {
  // The call is the first member of what it belongs to.
  Call& call = reinterpret_cast<Call&>(outgoing);
  call.workload->on_complete(call, outcome);
}

void Workload::on_sent(transfer::OutgoingCall& outgoing) {
  Call& call = reinterpret_cast<Call&>(outgoing);
  call.workload->sequels_.on_sent(call.id);
}

void Workload::on_complete(Call& call, const transfer::Outcome& outcome) {
  sequels_.on_complete(call.id, outcome);
  const Duration slack = kSlack + hosts_[call.host]->time_stalled() + hosts_[call.host]->timer_lateness();
  if (outcome.failed && has_lost_pieces(checker_.record(call.id), outcome.code)) checker_.excuse(call.id);
  checker_.on_complete(call.id, outcome, slack);
  checker_.check_memory(*hosts_[call.host]);
  if (sabotage_ == Sabotage::completes_twice && call.id % 50 == 49) checker_.on_complete(call.id, outcome, slack);
  if (call.ended) return;
  call.ended = true;
  std::ranges::fill(engines_part(call.outgoing), kPoison);
  if (call.parent != 0) answer_parent(call.host, call.parent, !outcome.failed);
  if (!call.is_chain) return;
  const Duration pause = between(choices_, Duration{0}, shape_.think_time);
  if (choices_.chance(0.2)) {
    chain(call.host);  // inside the completion
  } else {
    hosts_[call.host]->run_at(world_.now() + pause, [this, host = call.host] { chain(host); });
  }
}

void Workload::check_end() {
  sequels_.check_end();
  for (auto& [host, site] : sites_) {
    for (const auto& call : site.calls) {
      if (!call->ended) continue;
      if (std::ranges::any_of(engines_part(call->outgoing), [](std::byte b) { return b != kPoison; })) {
        checker_.violation(
            fmt::format("{} was written to after it had completed", Checker::describe(checker_.record(call->id))));
      }
    }
  }
}

// ---- callees -------------------------------------------------------------------------------------------------------

void Workload::run_nothing(void* context, transfer::IncomingTransfer& request, Instant now) {
  auto& serving = *static_cast<Serving*>(context);
  serving.workload->checker_.on_nothing_run();
  serving.engine->reply(request, {}, {}, now);
}

void Workload::run_echo(void* context, transfer::IncomingTransfer& request, Instant) {
  auto& serving = *static_cast<Serving*>(context);
  serving.workload->on_request(serving.host, *serving.engine, request);
}

void Workload::on_request(HostId host, engine::Engine& engine, transfer::IncomingTransfer& request) {
  ByteSpan message{request.delivery.request, request.bytes};
  std::size_t header_bytes = request.header_bytes;
  if (buffer::Landing* const landing = request.landing()) {
    if (!open_body(*landing)) checker_.violation(fmt::format("host {} cannot open a large request", host));
    message = landing->whole();
    header_bytes = landing->header_bytes;
    checker_.check_memory(*hosts_[host]);
  }
  const CallRecord* record = checker_.on_run(host, hosts_[host]->config(), request, message, header_bytes);
  if (record != nullptr) sequels_.on_run(record->instruction.id);
  if (record == nullptr) {
    engine.fail(request, Code::invalid_argument, "not a request of this simulation", world_.now());
    return;
  }
  if (sabotage_ == Sabotage::runs_twice && record->instruction.id % 50 == 49) {
    checker_.on_run(host, hosts_[host]->config(), request, message, header_bytes);
  }
  if (sabotage_ == Sabotage::keeps_a_large_request && request.landing() != nullptr) {
    detail::pin(request.delivery.pin);
    sites_[host].kept.push_back(request.delivery.pin);
  }
  if (sabotage_ == Sabotage::keeps_a_receive_buffer && request.landing() == nullptr &&
      request.delivery.pin != nullptr && sites_[host].kept.empty()) {
    detail::pin(request.delivery.pin);
    sites_[host].kept.push_back(request.delivery.pin);
  }
  const std::uint64_t key = next_pending_++;
  Site& site = sites_[host];
  Pending& pending = site.pending[key];
  pending = {.transfer = &request, .engine = &engine, .instruction = record->instruction, .bytes = request.bytes};
  if (record->instruction.keeps_request && request.delivery.pin != nullptr) {
    detail::pin(request.delivery.pin);
    pending.pin = request.delivery.pin;
    pending.request = message;
  }
  if (sabotage_ == Sabotage::forgets_an_answer && record->instruction.id % 50 == 49) return;
  const Instant deadline = request.deadline;
  switch (record->instruction.answer) {
    case Answer::nested:
      submit(host, {.callee = record->instruction.nested_host,
                    .depth = static_cast<std::uint8_t>(record->instruction.depth + 1),
                    .deadline = deadline,
                    .parent = key});
      break;
    case Answer::later:
      answer_later(host, key, std::chrono::microseconds(record->instruction.delay_us));
      break;
    case Answer::error:
      answer(host, key, false);
      break;
    case Answer::now:
      if (shape_.service_time.count() != 0) {
        site.busy_until = std::max(site.busy_until, world_.now()) + shape_.service_time;
        answer_later(host, key, site.busy_until - world_.now());
      } else {
        answer(host, key, true);
      }
      break;
  }
}

void Workload::answer_later(HostId host, std::uint64_t pending, Duration delay) {
  hosts_[host]->run_at(world_.now() + delay, [this, host, pending] { answer(host, pending, true); });
}

void Workload::answer_parent(HostId host, std::uint64_t parent, bool well) {
  if (sites_[host].pending.contains(parent)) answer(host, parent, well);
}

void Workload::answer(HostId host, std::uint64_t key, bool well) {
  Site& site = sites_[host];
  const auto found = site.pending.find(key);
  const Pending pending = found->second;
  site.pending.erase(found);
  if (pending.pin != nullptr) {
    if (!read_request(pending.request)) {
      checker_.violation(
          fmt::format("the request of call {} changed while its handler kept it", pending.instruction.id));
    }
    detail::unpin(pending.pin);
  }
  checker_.on_answered(host, pending.instruction.id, pending.bytes);
  engine::Engine& engine = *pending.engine;
  if (!well) {
    engine.fail(*pending.transfer, Code::application, fmt::format("no {}", pending.instruction.id), world_.now());
    return;
  }
  Instruction instruction = pending.instruction;
  std::vector<std::byte> reply(instruction.reply_bytes);
  if (sabotage_ == Sabotage::swaps_replies && instruction.id % 50 == 49) ++instruction.id;
  write_reply(reply, instruction);
  const ByteSpan whole = reply;
  const std::size_t header_bytes = reply_header_bytes(instruction);
  const ByteSpan header = whole.first(header_bytes), body = whole.subspan(header_bytes);
  if (is_large(host, reply.size())) {
    engine.reply_large(*pending.transfer, seal(host, instruction.id + 1, body), {.bytes = body.size()}, Pattern::unary,
                       header, world_.now());
  } else {
    engine.reply(*pending.transfer, header, body, world_.now());
  }
}

}  // namespace weir::sim
