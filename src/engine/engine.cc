#include "engine/engine.h"

#include <algorithm>

#include "engine/core.h"

namespace weir::engine {

Engine::Engine(const EngineConfig& config, crypto::Entropy& entropy, Subscriber* subscriber, std::uint64_t seed,
               Instant now)
    : core_(std::make_unique<Core>(config, entropy, subscriber, seed, now)) {}
Engine::~Engine() = default;

Result<std::uint32_t> Engine::connect(const Address& address) {
  Core& core = *core_;
  if (!core.has_identity()) {
    const auto found = core.peers_by_address.find(address);
    if (found != core.peers_by_address.end()) return found->second;
  }
  Peer* peer = core.peers.acquire();
  if (peer == nullptr)
    return std::unexpected(Error(Code::overloaded, "this side has as many peers as its limit allows"));
  peer->address = address;
  peer->name = address.to_string();
  peer->index = core.peers.index_of(peer);
  if (!core.has_identity()) core.peers_by_address.emplace(address, peer->index);
  return peer->index;
}

bool Engine::take_wanted(Wanted& out) {
  if (core_->wanted.empty()) return false;
  out = core_->wanted.back();
  core_->wanted.pop_back();
  return true;
}
void Engine::install(std::uint32_t peer, const Credential& credential, Instant now) {
  core_->events.set_now(now);
  if (Peer* found = core_->peers.at(peer)) core_->install_credential(*found, credential, now);
}
void Engine::refuse(std::uint32_t peer, Code code, std::string_view sentence, Instant now) {
  core_->events.set_now(now);
  if (Peer* found = core_->peers.at(peer)) core_->refuse_credential(*found, code, sentence, now);
}

void Engine::submit(OutgoingCall& call, Instant now) {
  core_->events.set_now(now);
  core_->submit(call, now);
}
void Engine::release(OutgoingCall& call, Instant now) {
  if (call.state != OutgoingCall::State::held) return;
  core_->events.set_now(now);
  core_->release(call, now);
}
void Engine::fail_held(OutgoingCall& call, Code code, const char* sentence, Instant now) {
  if (call.state != OutgoingCall::State::held) return;
  core_->events.set_now(now);
  core_->fail_call(call, code, sentence, now);
}
void Engine::cancel(OutgoingCall& call, Instant now) {
  core_->events.set_now(now);
  core_->cancel(call, now);
}
bool Engine::replies_wait() const { return core_->grants.waiting(token::kReplyPurse) != 0; }

void Engine::look_for_awaited(Instant now) { core_->serve_awaited(now); }

transfer::BlockPool& Engine::blocks() { return core_->blocks; }

Result<void> Engine::serve(std::uint64_t method, std::string_view name, Handler handler) {
  Core& core = *core_;
  if (core.methods.size() >= Core::kMaxMethods) {
    return std::unexpected(Error(Code::overloaded, "too many methods are served"));
  }
  const auto [at, fresh] = core.methods.try_emplace(method, Method{std::string(name), handler});
  if (!fresh) {
    if (at->second.name == name) {
      return std::unexpected(
          Error(Code::invalid_argument, "the method \"" + std::string(name) + "\" is served already"));
    }
    return std::unexpected(Error(Code::invalid_argument, "the methods \"" + std::string(name) + "\" and \"" +
                                                             at->second.name +
                                                             "\" have the same hash; rename one of them"));
  }
  core.last_handler = nullptr;
  return {};
}

void Engine::reply(IncomingTransfer& request, ByteSpan header, ByteSpan body, Instant now) {
  if (header.size() + body.size() > core_->config.limits.inline_bytes) {
    core_->answer_error(request, Code::too_large, true, "the reply is larger than the limit for inline messages", now);
    return;
  }
  core_->answer(request, header, body, false, now);
}

void Engine::fail(IncomingTransfer& request, Code code, std::string_view sentence, Instant now, bool may_have_run) {
  core_->answer_error(request, code, may_have_run, sentence, now);
}

void Engine::reply_large(transfer::IncomingTransfer& request, buffer::Sealed* sealed, transfer::CargoRange range,
                         Pattern pattern, ByteSpan header, Instant now) {
  core_->answer_large(request, sealed, range, pattern, header, now);
}

void Engine::on_datagram(MutableByteSpan datagram, const Address& from, std::uint8_t ecn, detail::Pin* buffer,
                         Instant now) {
  core_->events.set_now(now);
  core_->on_datagram<false>(datagram, from, ecn, buffer, now);
}

void Engine::on_forwarded(MutableByteSpan datagram, const Address& from, std::uint8_t ecn, Instant now) {
  core_->events.set_now(now);
  core_->is_forwarded = true;
  core_->on_datagram<true>(datagram, from, ecn, nullptr, now);
  core_->is_forwarded = false;
}

// Counts only if it quotes a hello that is under way, whose path and random cannot be guessed, or a packet in flight.
// The latter ends nothing: a peer that came back elsewhere is looked for, otherwise the probes decide.
void Engine::on_unreachable(const Address& who, ByteSpan quoted, Instant now) {
  Core& core = *core_;
  if (quoted.size() < wire::kHeaderBytes) return;
  const wire::PacketHeader header = wire::decode_header(quoted.data());
  if (header.type == wire::PacketType::sealed) {
    Path* path = core.has_identity() ? core.find_open(who, header.path) : nullptr;
    if (path != nullptr && !path->draining && core.is_in_flight(*path, header.number_low)) {
      core.want_credential(*path->peer, true);
    }
    return;
  }
  constexpr std::size_t kRandomAt = 10;  // type, version, path, worker, port
  if (header.type != wire::PacketType::hello || quoted.size() < kRandomAt + 8) return;
  Path* path = core.find_path(load<std::uint32_t>(quoted.data() + 2));
  if (path == nullptr || path->state != Path::State::hello || path->remote != who || path->peer->path != path->id)
    return;
  Peer& peer = *path->peer;
  if (!peer.is_own_random(quoted.subspan(kRandomAt, std::min<std::size_t>(quoted.size() - kRandomAt, 32)))) return;
  if (core.has_identity()) return core.doubt_address(peer, now);
  core.give_up_hello(peer, Code::peer_failed, "nobody listens at the peer's address", now);
}

void Engine::on_timeout(Instant now) { core_->on_timeout(now); }
void Engine::set_catching_up(bool yes) { core_->is_catching_up = yes; }
Instant Engine::next_deadline() const { return core_->wheel.next_deadline(); }
std::size_t Engine::deliver(Instant now) { return core_->deliver(now); }
void Engine::collect(std::vector<Train>& out, Instant now) { core_->collect(out, now); }

void Engine::on_train_fate(const Train& train, TrainFate fate, Instant now) {
  if (fate != TrainFate::too_big) return;  // recovery notices the rest
  Path* path = core_->find_path(train.path);
  if (path != nullptr) path->mtu.on_probe_refused(train.segment_size, now);
}

std::size_t Engine::undelivered() const { return core_->requests_queued + core_->completions.size(); }

bool Engine::has_cut_short() const { return core_->cut_short; }

bool Engine::has_work() const {
  return !core_->touched.empty() || core_->links.has_turns() || !core_->plain.empty() || !core_->completions.empty() ||
         core_->delivery_levels != 0 || core_->has_unseen_requests() || !core_->sent_ranges.empty() ||
         core_->returned->has_some() || (core_->nic != nullptr && core_->nic->is_due);
}

void Engine::close(Instant now) { core_->close(now); }

bool Engine::is_quiet() const {
  return core_->calls_queued == 0 && core_->calls_sent == 0 && core_->incoming.live() == 0 &&
         core_->completions.empty();
}

Census Engine::census() const {
  Census census{.calls_queued = core_->calls_queued,
                .calls_sent = core_->calls_sent,
                .incoming = core_->incoming.live(),
                .blocks = core_->blocks.outstanding(),
                .reassemblies = core_->reassemblies.live(),
                .timers = core_->wheel.size(),
                .paths = core_->paths.live(),
                .peers = core_->peers.live(),
                .writers = core_->writers.live(),
                .arrivals = core_->arrivals.live(),
                .regions = core_->regions.live(),
                .regions_leaked = core_->regions.in_state(token::RegionState::leaked)};
  for (std::uint8_t purse = 0; purse < token::kPurses; ++purse) census.large_bytes += core_->grants.used(purse);
  core_->paths.for_each([&](Path& path) {
    census.frames_in_flight += path.frames.size() + path.again.size();
    census.packets_in_flight += path.loss.eliciting_in_flight();
    for (std::size_t level = 0; level < path.accounts.in_use(); ++level) {
      census.credit_used += path.accounts[level].unanswered();
    }
  });
  return census;
}

std::string Engine::describe_limits() const {
  const Core& core = *core_;
  const auto& ledger = core.ledger.options();
  std::string text;
  const auto line = [&text](std::string_view what, std::uint64_t value) {
    text.append(what).append(": ").append(std::to_string(value)).append("\n");
  };
  line("largest inline message, bytes", core.config.limits.inline_bytes);
  // Without members each path is one (docs/protocol.md, rule C-11), and only the bounds of a path hold.
  const auto credit_of_one = [&](std::uint8_t level) {
    if (core.has_identity()) return core.ledger.per_member(level);
    return level == 0 ? ledger.per_path : core.ledger.nested_per_path();
  };
  line("outstanding calls per path", core.config.limits.calls_per_peer);
  line("queued calls", core.config.limits.queued_calls);
  line("peers", core.config.limits.peers);
  line("paths that one member may make", core.most_paths_of_a_member());
  line("requests received and unanswered, all peers, bytes", ledger.capacity);
  line("requests received and unanswered, one member, bytes", credit_of_one(0));
  line("nested requests received and unanswered, all peers, each level, bytes", core.ledger.nested_capacity());
  line("nested requests received and unanswered, one member, each level, bytes", credit_of_one(1));
  line("answers due or not acknowledged, all peers, bytes", core.answers.capacity());
  line("answers due or not acknowledged, one member, bytes", core.answers.capacity() / 2);
  line("room reserved for replies, bytes", core.config.limits.reply_bytes);
  const auto calls_with_room = [&](std::string_view what, std::uint32_t max_reply) {
    const std::size_t room = reply_room_of(max_reply, core.config.limits.inline_bytes);
    line(std::string("calls that this is room for, ").append(what), core.config.limits.reply_bytes / room);
  };
  calls_with_room("each without CallOptions::max_reply", wire::kAnyReply);
  constexpr std::uint32_t kSmallReply = 64;
  calls_with_room("each with CallOptions::max_reply of " + std::to_string(kSmallReply), kSmallReply);
  line("largest large message, bytes", core.config.limits.message_bytes);
  const auto bound = [&](std::string_view what, std::uint8_t purse) {
    line(std::string(what) + ", all peers, bytes", core.grants.bound(purse).total);
    line(std::string(what) + ", all peers, bytes of memory that they take at most",
         buffer::landing_memory(core.grants.bound(purse).total));
    line(std::string(what) + ", one member, bytes", core.grants.bound(purse).per_sender);
  };
  bound("large requests under way or held", token::request_purse(0));
  bound("nested large requests under way or held, each level", token::request_purse(1));
  bound("large replies under way or held", token::kReplyPurse);
  bound("large replies that are awaited while others take all of that", token::kAwaitedPurse);
  return text;
}

event::Sink& Engine::events() { return core_->events; }

}  // namespace weir::engine
