#include "sim/hostile_sender.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "buffer/seal.h"
#include "engine/engine_access.h"
#include "sim/random_stream.h"

namespace weir::sim {

using namespace std::chrono_literals;

// Tempers: all kinds of things; one who opens and opens; one who writes; one who keeps what it has.
const HostileSender::Choice HostileSender::kChoices[] = {
    {static_cast<Act>(&HostileSender::open), {60, 120, 60, 2}},
    {&HostileSender::open_with_region, {40, 20, 60, 2}},
    {&HostileSender::open_again, {15, 15, 15, 1}},
    {&HostileSender::open_half, {4, 8, 2, 1}},
    {&HostileSender::open_absurd, {8, 8, 4, 1}},
    {&HostileSender::hoard, {2, 30, 1, 4}},
    {&HostileSender::ask_small, {20, 20, 20, 2}},
    {&HostileSender::write_some, {60, 5, 120, 0}},
    {&HostileSender::write_all, {20, 1, 60, 0}},
    {&HostileSender::trickle, {20, 40, 20, 60}},
    {&HostileSender::scribble, {60, 5, 60, 0}},
    {&HostileSender::write_outside, {40, 20, 80, 10}},
    {&HostileSender::write_foreign, {60, 20, 100, 20}},
    {&HostileSender::write_stale, {40, 20, 60, 10}},
    {&HostileSender::ask_for_regions, {30, 60, 20, 60}},
    {&HostileSender::grant_and_revoke, {40, 20, 10, 2}},
    {&HostileSender::acknowledge_messages, {30, 10, 10, 0}},
    {&HostileSender::acknowledge_packets, {10, 10, 10, 0}},
    {&HostileSender::cancel, {25, 5, 15, 0}},
    {&HostileSender::fall_silent, {2, 2, 1, 0}},
    {&HostileSender::break_a_rule, {3, 1, 2, 0}},
};

// A correct one, by the host's own engine.
struct HostileSender::Call {
  transfer::OutgoingCall outgoing;
  HostileSender* sender = nullptr;
  bool ended = false;
};

HostileSender::Totals& HostileSender::Totals::operator+=(const Totals& other) {
  opened += other.opened;
  finished += other.finished;
  tokens_named += other.tokens_named;
  outside += other.outside;
  foreign += other.foreign;
  stale += other.stale;
  scribbles += other.scribbles;
  unasked += other.unasked;
  cancelled += other.cancelled;
  broken += other.broken;
  silences += other.silences;
  calls += other.calls;
  answers += other.answers;
  replies += other.replies;
  return *this;
}

HostileSender::HostileSender(World& world, const HostileShape& shape, unsigned index, Sabotage sabotage)
    : world_(world),
      shape_(shape),
      index_(index),
      sabotage_(sabotage),
      random_(stream(world.seed, "hostile sender", index)),
      keys_(stream_seed(world.seed, "hostile keys", index)),
      temper_(shape.hoards ? 3 : static_cast<unsigned>(random_.below(3))) {}

HostileSender::~HostileSender() {
  for (Message& message : messages_) forget(message);
}

void HostileSender::set_host(Host& host) {
  host_ = &host;
  forger_.emplace(world_, host);
}

void HostileSender::on_start(HostId) {
  if (is_stopped_) return;
  (void)host_->engine().serve(kGive.id(), kGive.name(), {.run = run_give, .context = this});
  for (int i = 0; i < 3; ++i) host_->run_at(world_.now() + between(random_, 0us, 2ms), [this] { call(); });
  if (!std::exchange(strikes_, true)) strike();
}

void HostileSender::on_stop(HostId) {
  for (const auto& call : calls_) {
    if (!call->ended) call->outgoing.drop_bytes();
  }
  calls_.clear();
  for (Message& message : messages_) forget(message);
  messages_.clear();
}

// ---- correct calls and answers
// -------------------------------------------------------------------------------------------------

void HostileSender::call() {
  if (is_stopped_) return;
  std::erase_if(calls_, [](const auto& call) { return call->ended; });
  Host& victim = *victims_[random_.below(victims_.size())];
  const auto peer = host_->peer(victim);
  if (!peer) return;
  ++totals_.calls;
  calls_.push_back(std::make_unique<Call>());
  Call& call = *calls_.back();
  call.sender = this;
  transfer::OutgoingCall& outgoing = call.outgoing;
  outgoing.complete = &complete;
  outgoing.method = kTake.id();
  outgoing.deadline = world_.now() + between(random_, 50ms, 4s);
  outgoing.peer = *peer;
  outgoing.priority = any_priority();
  if (random_.chance(shape_.hoards ? 0.9 : 0.2)) {
    outgoing.bytes = static_cast<std::uint32_t>(random_.below(transfer::OutgoingCall::kInlineBytes) + 1);
    std::ranges::copy(marked(outgoing.bytes), outgoing.inline_bytes);
  } else {
    const std::vector<std::byte> text = marked(any_bytes());
    outgoing.is_large = true;
    outgoing.block = transfer::load_cargo(host_->engine().blocks(), host_->seal(text, 0), {.bytes = text.size()},
                                          Pattern::unary, marked(8));
    outgoing.bytes = wire::kCargoBytes + 8;
  }
  host_->engine().submit(outgoing, world_.now());
}

void HostileSender::complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome) {
  // The call is the first member of what it belongs to.
  Call& call = reinterpret_cast<Call&>(outgoing);
  HostileSender& self = *call.sender;
  call.ended = true;
  self.totals_.answers += !outcome.failed;
  const Duration pause = between(self.random_, Duration{0}, self.shape_.interval * (outcome.failed ? 20 : 4));
  self.host_->run_at(self.world_.now() + pause, [&self] { self.call(); });
}

void HostileSender::run_give(void* context, transfer::IncomingTransfer& request, Instant) {
  auto& self = *static_cast<HostileSender*>(context);
  // Meanwhile it may be answered by hand.
  const Duration delay = between(self.random_, Duration{0}, self.shape_.interval * 30);
  self.host_->run_at(self.world_.now() + delay, [&self, target = &request] { self.give(*target); });
}

void HostileSender::give(transfer::IncomingTransfer& request) {
  engine::Engine& engine = host_->engine();
  if (random_.chance(0.1)) return engine.fail(request, Code::application, "no", world_.now());
  if (random_.chance(0.4) || may_be_adopted(request.generation)) {
    return engine.reply(request, {}, marked(random_.below(200)), world_.now());
  }
  const std::vector<std::byte> text = marked(any_bytes());
  engine.reply_large(request, host_->seal(text, 0), {.bytes = text.size()}, Pattern::unary, marked(8), world_.now());
}

// ---- everything else -----------------------------------------------------------------------------------------------

void HostileSender::strike() {
  if (is_stopped_) return;
  world_.queue.after(between(random_, Duration{1}, shape_.interval * 2), [this] { strike(); });
  const std::optional<Aim> where = aim();
  if (!where) return;
  const auto weigh = [this](std::uint64_t sum, const Choice& choice) { return sum + choice.weight[temper_]; };
  std::uint64_t die = random_.below(std::accumulate(std::begin(kChoices), std::end(kChoices), std::uint64_t{0}, weigh));
  for (const Choice& choice : kChoices) {
    if (die < choice.weight[temper_]) return (this->*choice.act)(*where);
    die -= choice.weight[temper_];
  }
}

std::optional<HostileSender::Aim> HostileSender::aim() {
  if (!host_->is_up()) return std::nullopt;
  Host& victim = *victims_[random_.below(victims_.size())];
  if (!victim.is_up()) return std::nullopt;
  const std::vector<engine::Path*> paths = forger_->paths_to(victim);
  if (paths.empty()) return std::nullopt;
  const Aim aim{.victim = &victim, .path = paths[random_.below(paths.size())]};
  for (const RegionView& view : forger_->regions_of(victim, *aim.path)) {
    if (std::ranges::find(regions_, view.region->id) != regions_.end()) continue;
    if (regions_.size() < kMaxRegions) {
      regions_.push_back(view.region->id);
    } else {
      regions_[random_.below(kMaxRegions)] = view.region->id;
    }
  }
  return aim;
}

std::vector<std::byte> HostileSender::marked(std::size_t bytes) {
  std::vector<std::byte> text(bytes);
  mark(text, index_, random_);
  return text;
}

// Mostly a few records; sometimes next to nothing, sometimes all that is allowed.
std::uint64_t HostileSender::any_bytes() {
  if (random_.chance(0.1)) return random_.below(64) + 1;
  if (random_.chance(0.1)) return shape_.largest_bytes;
  return between(random_, 1'000, std::min<std::size_t>(random_.chance(0.3) ? 400'000 : 80'000, shape_.largest_bytes));
}

std::optional<wire::TransferId> HostileSender::new_id(const Aim& aim) {
  engine::Path& path = *aim.path;
  if (path.initiator) {
    // Not where the host's own engine has its calls.
    const auto slot = static_cast<std::uint32_t>(between(random_, path.max_calls / 2, path.max_calls - 1));
    if (shape_.hoards) {  // a new message would end the one that it has there
      const engine::Path* const theirs = Forger::path_at(*aim.victim, path);
      if (theirs == nullptr) return std::nullopt;
      if (slot < theirs->incoming.size() && theirs->incoming[slot].transfer != nullptr) return std::nullopt;
    }
    return wire::TransferId{slot, path.next_generation++};
  }
  std::vector<wire::TransferId> owed;
  for (std::uint32_t slot = 0; slot < path.incoming.size(); ++slot) {
    if (path.incoming[slot].transfer != nullptr) owed.push_back({slot, path.incoming[slot].generation});
  }
  if (owed.empty()) return std::nullopt;
  return owed[random_.below(owed.size())];
}

// Of a message of its own, of a call of its own engine, or of nothing at all.
wire::TransferId HostileSender::any_id(const Aim& aim) {
  const Message* const message = any_message(aim);
  if (message != nullptr && random_.chance(0.7)) return message->id;
  const engine::Path& path = *aim.path;
  const std::uint64_t slots = path.initiator ? path.max_calls : std::max<std::uint64_t>(path.incoming.size(), 1);
  const std::uint64_t generation = random_.below(std::max(path.next_generation, path.last_incoming) + 2);
  return {static_cast<std::uint32_t>(random_.below(slots)), generation};
}

// Any that it has ever seen, one that is not there yet, one that never will be.
std::uint64_t HostileSender::any_region(const Aim& aim) {
  const std::vector<RegionView> views = forger_->regions_of(*aim.victim, *aim.path);
  if (!views.empty() && random_.chance(0.5)) return views[random_.below(views.size())].region->id;
  if (regions_.empty() || random_.chance(0.1)) return random_.next();
  token::RegionId region = token::RegionId::unpack(regions_[random_.below(regions_.size())]);
  if (random_.chance(0.3)) region.generation += between(random_, 1, 3);
  if (random_.chance(0.1)) region.slot += static_cast<std::uint32_t>(random_.below(1'000));
  return region.packed();
}

HostileSender::Message* HostileSender::any_message(const Aim& aim) {
  std::vector<Message*> found;
  for (Message& message : messages_) {
    if (message.serial == aim.path->serial) found.push_back(&message);
  }
  return found.empty() ? nullptr : found[random_.below(found.size())];
}

std::uint64_t HostileSender::region_of(const Aim& aim, const Message& message) {
  for (const RegionView& view : forger_->regions_of(*aim.victim, *aim.path)) {
    const token::Region& region = *view.region;
    if (!view.is_ours || region.side != message.side || region.transfer != message.id.packed()) continue;
    return region.landing->adopted == message.cargo.adopted ? region.id : wire::kNoRegion;
  }
  return wire::kNoRegion;
}

std::optional<HostileSender::Message> HostileSender::make_message(const Aim& aim, Kind kind) {
  const std::optional<wire::TransferId> id = new_id(aim);
  if (!id) return std::nullopt;
  Message message;
  message.serial = aim.path->serial;
  message.id = *id;
  message.side = aim.path->initiator ? wire::Side::request : wire::Side::reply;
  wire::CargoFrame& cargo = message.cargo;
  cargo.body_bytes = any_bytes();
  cargo.record_bytes =
      random_.chance(0.7)
          ? buffer::kRecordBytes
          : static_cast<std::uint32_t>(between(random_, buffer::kSmallestRecordBytes, buffer::kLargestRecordBytes));
  cargo.wants_token = random_.chance(0.5);
  if (kind == Kind::empty) {
    cargo.payload_bytes = cargo.body_bytes;
    return message;
  }
  message.text = marked(cargo.body_bytes);
  const bool may_be = message.side == wire::Side::request || may_be_adopted(message.id.generation);
  if (kind == Kind::any && may_be && random_.chance(0.25)) {
    cargo.adopted = true;
    cargo.payload_bytes = std::min<std::uint64_t>(random_.below(100), cargo.body_bytes);
    cargo.first_record = random_.below(cargo.body_bytes - cargo.payload_bytes + 1);
    cargo.key = buffer::binding_digest(ByteSpan{message.text}.subspan(cargo.first_record, cargo.payload_bytes));
    return message;
  }
  keys_.fill(cargo.key);
  cargo.payload_bytes = cargo.body_bytes;
  message.sealed = buffer::seal(memory_, message.text, cargo.key, buffer::thread_key(), cargo.record_bytes);
  message.text.clear();
  return message;
}

void HostileSender::keep(Message message) {
  if (messages_.size() < kMaxMessages) return messages_.push_back(std::move(message));
  Message& place = messages_[random_.below(kMaxMessages)];
  forget(place);
  place = std::move(message);
}

void HostileSender::forget(Message& message) {
  if (message.sealed != nullptr) detail::unpin(std::exchange(message.sealed, nullptr));
}

}  // namespace weir::sim
