#include "handshake/connection.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "handshake/failure.h"

namespace weir::handshake {
namespace {

constexpr std::size_t kMaxReasonBytes = 200;

const std::uint8_t* bytes(ByteSpan span) { return reinterpret_cast<const std::uint8_t*>(span.data()); }
std::uint8_t* bytes(MutableByteSpan span) { return reinterpret_cast<std::uint8_t*>(span.data()); }
ngtcp2_tstamp stamp(Instant now) { return static_cast<ngtcp2_tstamp>(std::max<std::int64_t>(now.ns, 0)); }

void append_sized(SecretBytes& out, ByteSpan content) {
  const std::size_t at = out.size();
  out.resize(at + sizeof(std::uint16_t));
  store(out.data() + at, static_cast<std::uint16_t>(content.size()));
  out.insert(out.end(), content.begin(), content.end());
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::initiate(Context& context, ConnectionIds::Owner owner,
                                                         const Address& remote,
                                                         std::shared_ptr<const Credentials> credentials,
                                                         Request request, Instant now) {
  std::unique_ptr<Connection> self(new Connection(context, Role::initiator, owner, remote, now));
  self->tag_ = self->outcome_.tag = request.tag;
  if (auto opened = self->open_session(std::move(credentials), std::move(request.expected_name)); !opened) {
    return std::unexpected(opened.error());
  }
  const ngtcp2_cid theirs = ConnectionIds::quic(context.ids.draw());  // a random one until the responder chooses
  const ngtcp2_cid ours = ConnectionIds::quic(self->ids_.emplace_back(context.ids.add(owner)));
  const ngtcp2_callbacks callbacks = Connection::callbacks(Role::initiator);
  const ngtcp2_settings settings = self->settings(now);
  const ngtcp2_transport_params parameters = self->parameters();
  if (ngtcp2_conn_client_new(&self->quic_, &theirs, &ours, self->path_.get(), NGTCP2_PROTO_VER_V1, &callbacks,
                             &settings, &parameters, nullptr, self.get()) != 0) {
    self->quic_ = nullptr;
    for (const std::uint64_t id : self->ids_) context.ids.remove(id);
    return std::unexpected(Error(Code::system, "QUIC: no connection: out of memory"));
  }
  self->session_->attach(self->quic_);
  return self;
}

Result<std::unique_ptr<Connection>> Connection::respond(Context& context, ConnectionIds::Owner owner,
                                                        const Address& remote,
                                                        std::shared_ptr<const Credentials> credentials,
                                                        const Arrival& arrival, Instant now) {
  std::unique_ptr<Connection> self(new Connection(context, Role::responder, owner, remote, now));
  if (auto opened = self->open_session(std::move(credentials), ""); !opened) return std::unexpected(opened.error());
  const ngtcp2_cid ours = ConnectionIds::quic(self->ids_.emplace_back(context.ids.add(owner)));
  const ngtcp2_callbacks callbacks = Connection::callbacks(Role::responder);
  ngtcp2_settings settings = self->settings(now);
  ngtcp2_transport_params parameters = self->parameters();
  parameters.original_dcid = arrival.header.dcid;
  if (arrival.before_retry) {
    parameters.original_dcid = *arrival.before_retry;
    parameters.retry_scid = arrival.header.dcid;
    parameters.retry_scid_present = 1;
    settings.token = arrival.header.token;
    self->proven_ = true;
  }
  if (ngtcp2_conn_server_new(&self->quic_, &arrival.header.scid, &ours, self->path_.get(), arrival.header.version,
                             &callbacks, &settings, &parameters, nullptr, self.get()) != 0) {
    self->quic_ = nullptr;
    for (const std::uint64_t id : self->ids_) context.ids.remove(id);
    return std::unexpected(Error(Code::system, "QUIC: no connection: out of memory"));
  }
  self->session_->attach(self->quic_);
  return self;
}

Connection::Connection(Context& context, Role role, ConnectionIds::Owner owner, const Address& remote, Instant now)
    : context_(&context),
      role_(role),
      remote_(remote),
      owner_(owner),
      end_(now + context.timeout),
      path_(remote),
      last_received_(now) {
  outcome_.inbound = role == Role::responder;
  outcome_.remote = remote;
}

Connection::~Connection() {
  leave_line();
  if (quic_ != nullptr) ngtcp2_conn_del(quic_);
}

Result<void> Connection::open_session(std::shared_ptr<const Credentials> credentials, std::string expected_name) {
  outcome_.own_valid_until_seconds = credentials->valid_until_seconds();
  auto session = TlsSession::open({.role = role_,
                                   .policy = &context_->policy,
                                   .credentials = std::move(credentials),
                                   .wall_clock = &context_->wall_clock,
                                   .key_log = &context_->key_log,
                                   .remote = remote(),
                                   .expected_name = std::move(expected_name)});
  if (!session) return std::unexpected(session.error());
  session_ = std::move(*session);
  return {};
}

void Connection::receive(ByteSpan datagram, bool proven, Instant now) {
  if (over_) return;
  proven_ = proven_ || proven;
  if (++datagrams_ > kMaxDatagramsPerHandshake) {
    return fail(Error(Code::peer_failed, remote().to_string() + " sent too much for a handshake"), Ending::application);
  }
  const int error = ngtcp2_conn_read_pkt(quic_, path_.get(), nullptr, bytes(datagram), datagram.size(), stamp(now));
  // A peer without QUIC's extension in its TLS hello: GnuTLS does not mind, and ngtcp2 would abort in the next write.
  if (has_keys_ && inbound() && ngtcp2_conn_get_negotiated_version(quic_) == 0) {
    return fail(Error(Code::refused, remote().to_string() + " sent no QUIC transport parameters"), Ending::silent);
  }
  if (error == 0) {
    last_received_ = now;
    if (heard_) {
      unanswered_ = std::vector<std::byte>();
      leave_line();
    }
    return advance();
  }
  if (error == NGTCP2_ERR_DRAINING) {
    ngtcp2_connection_close_error close;
    ngtcp2_conn_get_connection_close_error(quic_, &close);
    return fail(peer_closed(close, remote()), Ending::silent);
  }
  fail_in_library(error);
}

void Connection::expire(Instant now) {
  if (over_) return;
  if (now >= end_) {
    const bool worth_telling = role_ == Role::responder ? proven_ : heard_;
    return fail(silence(remote(), heard_), worth_telling ? Ending::application : Ending::silent);
  }
  if (now >= repeat_at_ && !heard_ && takes_turn(now)) {
    repeat_at_ = Instant::never();
    repeats_now_ = true;
  }
  const int error = ngtcp2_conn_handle_expiry(quic_, stamp(now));
  if (error == NGTCP2_ERR_HANDSHAKE_TIMEOUT || error == NGTCP2_ERR_IDLE_CLOSE) {
    return fail(silence(remote(), heard_), Ending::silent);
  }
  if (error != 0) fail_in_library(error);
}

void Connection::abandon_silently() {
  outcome_taken_ = true;
  over_ = true;
  ending_ = Ending::silent;
}

void Connection::abandon() {
  outcome_taken_ = true;
  fail(Error(Code::cancelled, "abandoned"), Ending::application);
}

Duration Connection::probe_timeout() const {
  if (has_repeated_) return Duration{0};
  return std::chrono::nanoseconds(static_cast<std::int64_t>(ngtcp2_conn_get_pto(quic_)));
}

Instant Connection::deadline() const {
  const ngtcp2_tstamp expiry = ngtcp2_conn_get_expiry(quic_);
  const Instant own = heard_ ? end_ : earliest(end_, repeat_at_);
  if (expiry >= static_cast<ngtcp2_tstamp>(Instant::never().ns)) return own;
  return earliest(own, Instant{static_cast<std::int64_t>(expiry)});
}

void Connection::keep_for_repetition(ByteSpan datagram, Instant now) {
  const bool is_first = unanswered_.empty();
  unanswered_.assign(datagram.begin(), datagram.end());
  if (is_first) return;      // QUIC's own first probe comes after kRepeat, and tells it the round trip
  constexpr int kShare = 4;  // of the interval, which is shorter by so much at most
  const Duration longest = std::max(kRepeat, context_->timeout * kShare / ((kShare - 1) * kMostRepeats));
  std::uint16_t random = 0;
  context_->entropy.fill(std::as_writable_bytes(std::span(&random, 1)));
  leave_line();
  repeat_at_ = now + longest - longest / kShare * random / (std::int64_t{1} << 16);
}

// It is due. If others are, too, it takes the next place in the line.
bool Connection::takes_turn(Instant now) {
  if (std::exchange(is_in_line_, false)) return true;
  const Instant place = std::max(now, context_->next_repeat);
  context_->next_repeat = place + kRepeatSpacing;
  if (place == now) return true;
  is_in_line_ = true;
  repeat_at_ = place;
  return false;
}

// Those behind it keep their places; the next one comes sooner.
void Connection::leave_line() {
  if (std::exchange(is_in_line_, false)) context_->next_repeat = context_->next_repeat - kRepeatSpacing;
}

std::size_t Connection::repeat(MutableByteSpan out, Instant now) {
  repeats_now_ = false;
  has_repeated_ = true;
  std::copy(unanswered_.begin(), unanswered_.end(), out.begin());
  keep_for_repetition(ByteSpan(out).first(unanswered_.size()), now);
  return unanswered_.size();
}

// Ngtcp2 would pace by its guess of the round trip if it were told when packets left; a handshake is a few packets.
std::size_t Connection::write(MutableByteSpan out, Instant now) {
  if (over_) return 0;
  if (repeats_now_ && !heard_) return repeat(out, now);
  const bool has_more = stream_ >= 0 && !end_written_;
  ngtcp2_vec rest{reinterpret_cast<std::uint8_t*>(outbound_.data()) + written_, outbound_.size() - written_};
  ngtcp2_ssize taken = -1;
  ngtcp2_ssize size = ngtcp2_conn_writev_stream(quic_, nullptr, nullptr, bytes(out), out.size(), &taken,
                                                has_more ? NGTCP2_WRITE_STREAM_FLAG_FIN : NGTCP2_WRITE_STREAM_FLAG_NONE,
                                                has_more ? stream_ : -1, &rest, has_more ? 1 : 0, stamp(now));
  if (size == NGTCP2_ERR_STREAM_DATA_BLOCKED || size == NGTCP2_ERR_STREAM_SHUT_WR ||
      size == NGTCP2_ERR_STREAM_NOT_FOUND) {
    taken = -1;
    size = ngtcp2_conn_write_pkt(quic_, nullptr, nullptr, bytes(out), out.size(), stamp(now));
  }
  if (size < 0) {
    fail_in_library(static_cast<int>(size));
    return 0;
  }
  if (has_more && taken >= 0) {
    written_ += static_cast<std::size_t>(taken);
    end_written_ = written_ == outbound_.size();
    if (end_written_ && answered_) finish(refused_);
  }
  if (role_ == Role::initiator && !heard_ && size > 0) {
    keep_for_repetition(ByteSpan(out).first(static_cast<std::size_t>(size)), now);
  }
  return static_cast<std::size_t>(size);
}

void Connection::advance() {
  if (completed_ && !established_ && !over_) begin_exchange();
  if (!established_ || over_) return;
  if (role_ == Role::initiator) {
    if (inbound_ended_ || inbound_too_large_) return read_answer();
  } else if (!answered_) {
    asks_ = asks_ || inbound_ended_ || inbound_too_large_;
    if (asks_ && !stream_closed_) return;
  } else if (stream_closed_) {
    over_ = true;  // the answer has arrived
    return;
  }
  if (stream_closed_) fail(Error(Code::peer_failed, remote().to_string() + " reset its stream"), Ending::application);
}

void Connection::begin_exchange() {
  if (auto checked = session_->check(); !checked) return fail(checked.error(), Ending::application);
  if (auto exported = session_->export_keys(outcome_.secret, outcome_.credential); !exported) {
    return fail(exported.error(), Ending::application);
  }
  outcome_.names = session_->names();
  established_ = true;
  if (role_ == Role::responder) return;
  std::vector<std::byte> offer = context_->offer(outcome_.credential);
  const WipeAtEnd wiped(offer);
  if (offer.size() > kMaxOfferBytes) {
    return fail(Error(Code::too_large, "our negotiation message has more than 4096 bytes"), Ending::application);
  }
  append_sized(outbound_, offer);
  if (ngtcp2_conn_open_bidi_stream(quic_, &stream_, nullptr) != 0) {
    fail(Error(Code::refused, remote().to_string() + " lets us open no stream"), Ending::application);
  }
}

Result<SecretBytes> Connection::parse(std::size_t header_bytes) const {
  if (inbound_too_large_)
    return std::unexpected(Error(Code::too_large, "a negotiation message has at most 4096 bytes"));
  const std::size_t length_at = header_bytes - sizeof(std::uint16_t);
  if (inbound_.size() < header_bytes ||
      load<std::uint16_t>(inbound_.data() + length_at) != inbound_.size() - header_bytes) {
    return std::unexpected(Error(Code::invalid_argument, "a negotiation message has another length than it says"));
  }
  return SecretBytes(inbound_.begin() + static_cast<std::ptrdiff_t>(header_bytes), inbound_.end());
}

void Connection::give_answer() {
  answered_ = true;
  Result<std::vector<std::byte>> answer;
  if (Result<SecretBytes> offer = parse(kOfferHeaderBytes); !offer) {
    answer = std::unexpected(offer.error());
  } else {
    outcome_.offer = std::move(*offer);
    outcome_.remote = remote();
    answer = context_->answer(outcome_);
    if (answer && answer->size() > kMaxOfferBytes) {
      answer = std::unexpected(Error(Code::too_large, "the answer is larger than a negotiation message may be"));
    }
  }
  if (answer) {
    outbound_.push_back(std::byte{0});
    append_sized(outbound_, *answer);
    crypto::wipe(*answer);
  } else {
    refused_ = answer.error();
    outbound_.push_back(static_cast<std::byte>(answer.error().code()));
    const std::string_view sentence = answer.error().message().substr(0, kMaxReasonBytes);
    append_sized(outbound_, std::as_bytes(std::span(sentence)));
  }
  stream_ = 0;
}

void Connection::read_answer() {
  auto answer = parse(kAnswerHeaderBytes);
  if (!answer)
    return fail(Error(answer.error().code(), remote().to_string() + ": " + std::string(answer.error().message())),
                Ending::application);
  const auto status = static_cast<std::uint8_t>(inbound_.front());
  if (status != 0) {
    const std::string sentence = printable({reinterpret_cast<const char*>(answer->data()), answer->size()});
    finish(Error(code_from_peer(status), remote().to_string() + " refused: " + sentence));
  } else {
    outcome_.offer = std::move(*answer);
    finish(std::nullopt);
  }
  over_ = true;
  ending_ = Ending::application;
}

void Connection::finish(std::optional<Error> failure) {
  if (outcome_ready_) return;
  outcome_ready_ = true;
  outcome_.failure = std::move(failure);
  if (outcome_.failure) outcome_.secret = {};
}

void Connection::fail(Error error, Ending ending, int library_error) {
  if (over_) return;
  over_ = true;
  ending_ = ending;
  library_error_ = library_error;
  close_code_ = static_cast<std::uint64_t>(error.code());
  close_reason_ = std::string(error.message().substr(0, kMaxReasonBytes));
  // Whoever has not shown that it receives at its address is no peer yet. Its failure is counted, no more.
  if (role_ == Role::responder && !proven_) {
    outcome_taken_ = true;
    unproven_failure_ = error;
  }
  finish(std::move(error));
}

void Connection::fail_in_library(int library_error) {
  const bool silent = library_error == NGTCP2_ERR_DROP_CONN || library_error == NGTCP2_ERR_RETRY;
  Error error =
      session_->refusal() ? *session_->refusal() : we_closed(library_error, ngtcp2_conn_get_tls_alert(quic_), remote());
  fail(std::move(error), silent ? Ending::silent : Ending::library, library_error);
}

std::optional<Outcome> Connection::take_outcome() {
  if (!outcome_ready_ || outcome_taken_) return std::nullopt;
  outcome_taken_ = true;
  return std::move(outcome_);
}

std::size_t Connection::write_close(MutableByteSpan out, Instant now) {
  if (ending_ == Ending::silent) return 0;
  ngtcp2_connection_close_error close;
  ngtcp2_connection_close_error_default(&close);
  const auto* reason = reinterpret_cast<const std::uint8_t*>(close_reason_.data());
  if (ending_ == Ending::application) {
    ngtcp2_connection_close_error_set_application_error(&close, close_code_, reason, close_reason_.size());
  } else if (library_error_ == NGTCP2_ERR_CRYPTO) {
    ngtcp2_connection_close_error_set_transport_error_tls_alert(&close, ngtcp2_conn_get_tls_alert(quic_), reason,
                                                                close_reason_.size());
  } else {
    ngtcp2_connection_close_error_set_transport_error_liberr(&close, library_error_, nullptr, 0);
  }
  const ngtcp2_ssize size =
      ngtcp2_conn_write_connection_close(quic_, nullptr, nullptr, bytes(out), out.size(), &close, stamp(now));
  return size > 0 ? static_cast<std::size_t>(size) : 0;
}

}  // namespace weir::handshake
