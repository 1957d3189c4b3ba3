#include "handshake/endpoint.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace weir::handshake {
namespace {

const std::uint8_t* bytes_of(ByteSpan span) { return reinterpret_cast<const std::uint8_t*>(span.data()); }

constexpr Duration kShortestTimer = std::chrono::milliseconds(1);

}  // namespace

Endpoint::Endpoint(Options options)
    : options_(std::move(options)),
      ids_(*options_.entropy),
      context_{.ids = ids_,
               .entropy = *options_.entropy,
               .policy = policy_,
               .wall_clock = std::move(options_.wall_clock),
               .key_log = std::move(options_.key_log),
               .answer = std::move(options_.answer),
               .offer = std::move(options_.offer),
               .timeout = options_.timeout,
               .initial_rtt = options_.initial_rtt},
      admission_(*options_.entropy, ids_),
      shares_(options_.max_incoming, options_.max_per_source) {
  WEIR_CHECK(options_.credentials != nullptr, "an endpoint needs credentials");
  WEIR_CHECK(context_.wall_clock, "an endpoint needs a wall clock");
  WEIR_CHECK(!options_.accepts || context_.answer, "an endpoint that accepts needs an answer");
}

Endpoint::~Endpoint() = default;

void Endpoint::set_credentials(std::shared_ptr<const Credentials> credentials) {
  WEIR_CHECK(credentials != nullptr, "an endpoint needs credentials");
  options_.credentials = std::move(credentials);
}

Result<void> Endpoint::connect(std::uint64_t tag, const Address& remote, std::string expected_name, Instant now) {
  if (by_tag_.contains(tag)) return std::unexpected(Error(Code::invalid_argument, "this tag's handshake is running"));
  if (by_tag_.size() >= options_.max_outgoing) {
    return std::unexpected(Error(Code::overloaded, "too many handshakes at once"));
  }
  const Serial serial = next_serial_++;
  auto connection = Connection::initiate(context_, serial, remote, options_.credentials,
                                         {.tag = tag, .expected_name = std::move(expected_name)}, now);
  if (!connection) return std::unexpected(connection.error());
  ++stats_.started;
  by_tag_.emplace(tag, serial);
  Live& live = live_[serial];
  live.connection = std::move(*connection);
  live.born = now;
  schedule(serial, live, now);
  mark_ready(serial, live);
  return {};
}

void Endpoint::abandon(std::uint64_t tag, Instant now) {
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end()) return;
  const Serial serial = found->second;
  Live& live = live_.at(serial);
  live.connection->abandon();
  settle(serial, live, now);
}

void Endpoint::abandon_silently(std::uint64_t tag, Instant now) {
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end()) return;
  const Serial serial = found->second;
  Live& live = live_.at(serial);
  live.connection->abandon_silently();
  settle(serial, live, now);
}

bool Endpoint::has_heard(std::uint64_t tag) const {
  const auto found = by_tag_.find(tag);
  return found != by_tag_.end() && live_.at(found->second).connection->heard();
}

std::optional<Endpoint::Progress> Endpoint::progress(std::uint64_t tag) const {
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end()) return std::nullopt;
  const Connection& connection = *live_.at(found->second).connection;
  return Progress{.last_received = connection.last_received(), .probe_timeout = connection.probe_timeout()};
}

void Endpoint::on_datagram(MutableByteSpan datagram, const Address& from, Instant now) {
  if (datagram.size() < kMinDatagramBytes || datagram.size() > kMaxDatagramBytes) {
    ++stats_.dropped_garbage;
    return;
  }
  forget_closed(now);
  ngtcp2_version_cid ids{};
  const int error = ngtcp2_pkt_decode_version_cid(&ids, bytes_of(datagram), datagram.size(), kConnectionIdBytes);
  const bool unknown_version = error == NGTCP2_ERR_VERSION_NEGOTIATION;
  if (error == 0) {
    if (const auto serial = ids_.find(ids.dcid, ids.dcidlen)) return deliver(*serial, datagram, from, true, now);
  }
  if ((error != 0 && !unknown_version) || !options_.accepts || ids.version == 0 || datagram.size() < kDatagramBytes) {
    ++stats_.dropped_garbage;
    return;
  }
  if (unknown_version || ids.version != NGTCP2_PROTO_VER_V1) {
    ++stats_.versions_sent;
    return reply(from, admission_.versions(ids));
  }
  if (const auto serial = ids_.find(ConnectionIds::initial(from, ids.dcid, ids.dcidlen))) {
    return deliver(*serial, datagram, from, false, now);
  }
  accept(datagram, ids, from, now);
}

void Endpoint::accept(ByteSpan datagram, const ngtcp2_version_cid& ids, const Address& from, Instant now) {
  ngtcp2_pkt_hd header{};
  if (ngtcp2_accept(&header, bytes_of(datagram), datagram.size()) != 0) {
    ++stats_.dropped_garbage;
    return;
  }
  // It asks again because it has waited for long. Only who receives at an address can be waiting there.
  if (asking_.contains(from)) {
    ++stats_.dropped_asking;
    return;
  }
  ngtcp2_cid before_retry{};
  const Admission::Proof proof = admission_.proof(header, from, before_retry, now);
  if (proof == Admission::Proof::invalid) return reply(from, admission_.invalid_token(header));
  const bool proven = proof == Admission::Proof::valid;
  if (!proven && (half_open_.size() >= options_.retry_from || !shares_.admit_unproven(from, now))) {
    ++stats_.retries_sent;
    return reply(from, admission_.retry(header, from, now));
  }
  if (proven) {
    if (const Serial oldest = shares_.oldest_if_full(from); oldest != 0) evict(oldest, now);
    if (!shares_.admit(from, now)) {
      ++stats_.dropped_source;
      return;
    }
  }
  if (!make_room(now)) {
    ++stats_.dropped_full;
    return;
  }
  const Serial serial = next_serial_++;
  auto connection =
      Connection::respond(context_, serial, from, options_.credentials,
                          {.header = header, .before_retry = proven ? std::optional(before_retry) : std::nullopt}, now);
  if (!connection) {
    ++stats_.dropped_full;
    return;
  }
  Live& live = live_[serial];
  live.connection = std::move(*connection);
  live.born = now;
  live.initial = ConnectionIds::initial(from, ids.dcid, ids.dcidlen);
  ids_.add(*live.initial, serial);
  half_open_.insert(serial);
  if (proven) hold(serial, live, now);
  live.connection->receive(datagram, false, now);
  if (!live.connection->heard()) {  // it looked like a first packet and was none
    ++stats_.dropped_garbage;
    live.connection->abandon_silently();
  } else {
    ++stats_.accepted;
  }
  if (settle(serial, live, now)) mark_ready(serial, live);
}

bool Endpoint::make_room(Instant now) {
  const std::size_t inbound = live_.size() - by_tag_.size();
  if (outcomes_.size() >= options_.max_incoming + options_.max_outgoing) return false;  // nobody takes them
  if (inbound < options_.max_incoming) return true;
  return !half_open_.empty() && evict(*half_open_.begin(), now);
}

// False: it is too young for that.
bool Endpoint::evict(Serial serial, Instant now) {
  Live& live = live_.at(serial);
  if (now - live.born < kEvictAfter) return false;
  ++stats_.evicted;
  live.connection->abandon_silently();
  settle(serial, live, now);
  return true;
}

void Endpoint::hold(Serial serial, Live& live, Instant now) {
  if (live.held || !live.connection->inbound()) return;
  live.held = true;
  shares_.hold(live.connection->remote(), serial, now);
}

void Endpoint::deliver(Serial serial, ByteSpan datagram, const Address& from, bool proven, Instant now) {
  if (const auto found = live_.find(serial); found != live_.end()) {
    Live& live = found->second;
    if (live.connection->remote() != from) {
      ++stats_.dropped_garbage;
      return;
    }
    if (proven) hold(serial, live, now);
    live.connection->receive(datagram, proven, now);
    if (settle(serial, live, now)) mark_ready(serial, live);
    return;
  }
  const auto closed = std::find_if(closed_.begin(), closed_.end(), [&](const Closed& c) { return c.serial == serial; });
  if (closed == closed_.end() || closed->remote != from || closed->last.size() > 3 * datagram.size() ||
      closed->replies >= kMaxRepliesWhenClosed) {
    return;
  }
  ++closed->replies;
  reply(from, closed->last);
}

void Endpoint::on_timeout(Instant now) {
  forget_closed(now);
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Serial serial = deadlines_.begin()->second;
    Live& live = live_.at(serial);
    live.connection->expire(now);
    if (settle(serial, live, now)) mark_ready(serial, live);
  }
}

Instant Endpoint::next_deadline() const {
  const Instant live = deadlines_.empty() ? Instant::never() : deadlines_.begin()->first;
  return closed_.empty() ? live : earliest(live, closed_.front().until);
}

bool Endpoint::take_datagram(Address& to, ByteSpan& bytes, Instant now) {
  if (take_reply(to, bytes)) return true;
  while (!ready_.empty()) {
    const Serial serial = ready_.front();
    ready_.pop_front();
    const auto found = live_.find(serial);
    if (found == live_.end()) continue;
    Live& live = found->second;
    live.ready = false;
    taken_.resize(kDatagramBytes);
    const std::size_t size = live.connection->write(taken_, now);
    to = live.connection->remote();
    const bool stays = settle(serial, live, now);
    if (size == 0) continue;
    if (stays) mark_ready(serial, live);  // behind the others
    taken_.resize(size);
    bytes = taken_;
    return true;
  }
  return take_reply(to, bytes);
}

bool Endpoint::take_reply(Address& to, ByteSpan& bytes) {
  if (replies_.empty()) return false;
  to = replies_.front().to;
  taken_ = std::move(replies_.front().bytes);
  replies_.pop_front();
  bytes = taken_;
  return true;
}

bool Endpoint::answer_one(Instant now) {
  if (questions_.empty()) return false;
  const Serial serial = questions_.begin()->second;
  Live& live = live_.at(serial);
  forget_question(live);
  live.connection->give_answer();
  if (settle(serial, live, now)) mark_ready(serial, live);
  return true;
}

void Endpoint::forget_question(Live& live) {
  questions_.erase(std::exchange(live.question, 0));
  const auto there = asking_.find(live.connection->remote());
  if (--there->second == 0) asking_.erase(there);
}

std::optional<Outcome> Endpoint::take_outcome() {
  if (outcomes_.empty()) return std::nullopt;
  std::optional<Outcome> outcome = std::move(outcomes_.front());
  outcomes_.pop_front();
  return outcome;
}

void Endpoint::reply(const Address& to, std::vector<std::byte> bytes) {
  if (!bytes.empty() && replies_.size() < kMaxPendingReplies) replies_.push_back({to, std::move(bytes)});
}

void Endpoint::mark_ready(Serial serial, Live& live) {
  if (live.ready) return;
  live.ready = true;
  ready_.push_back(serial);
}

bool Endpoint::settle(Serial serial, Live& live, Instant now) {
  Connection& connection = *live.connection;
  if (auto outcome = connection.take_outcome()) {
    ++(outcome->failure ? stats_.failed : stats_.completed);
    outcomes_.push_back(std::move(*outcome));
  }
  if (auto failure = connection.take_unproven_failure()) {
    ++stats_.failed_unproven;
    last_unproven_failure_ = std::move(failure);
  }
  if (connection.established() && half_open_.erase(serial) != 0) shares_.establish(connection.remote(), serial);
  if (connection.over()) {
    remove(serial, now);
    return false;
  }
  if (connection.asks() && live.question == 0) {
    live.question = next_question_++;
    questions_.emplace(live.question, serial);
    ++asking_[connection.remote()];
  }
  schedule(serial, live, now);
  return true;
}

void Endpoint::schedule(Serial serial, Live& live, Instant now) {
  // A timer that is due although its connection was just served would spin.
  const Instant deadline = std::max(live.connection->deadline(), now + kShortestTimer);
  if (deadline == live.deadline) return;
  deadlines_.erase({live.deadline, serial});
  live.deadline = deadline;
  deadlines_.insert({deadline, serial});
}

void Endpoint::remove(Serial serial, Instant now) {
  const auto found = live_.find(serial);
  Live& live = found->second;
  Connection& connection = *live.connection;
  Closed closed{.serial = serial,
                .remote = connection.remote(),
                .ids = {},
                .initial = std::move(live.initial),
                .last = std::vector<std::byte>(kDatagramBytes),
                .until = now + kClosedFor};
  closed.last.resize(connection.write_close(closed.last, now));
  closed.last.shrink_to_fit();
  closed.ids = connection.ids();
  if (!connection.inbound()) by_tag_.erase(connection.tag());
  half_open_.erase(serial);
  if (live.question != 0) forget_question(live);
  deadlines_.erase({live.deadline, serial});
  if (live.held) shares_.release(closed.remote, serial);
  live_.erase(found);
  if (closed.last.empty()) return forget(closed);
  reply(closed.remote, closed.last);
  if (closed_.size() >= kMaxClosed) {
    forget(closed_.front());
    closed_.pop_front();
  }
  closed_.push_back(std::move(closed));
}

void Endpoint::forget_closed(Instant now) {
  while (!closed_.empty() && closed_.front().until <= now) {
    forget(closed_.front());
    closed_.pop_front();
  }
}

void Endpoint::forget(const Closed& closed) {
  for (const std::uint64_t id : closed.ids) ids_.remove(id);
  if (closed.initial) ids_.remove(*closed.initial);
}

EndpointStats Endpoint::stats() const {
  EndpointStats stats = stats_;
  stats.half_open = half_open_.size();
  stats.connections = live_.size();
  stats.closed = closed_.size();
  stats.sources = shares_.known();
  return stats;
}

}  // namespace weir::handshake
