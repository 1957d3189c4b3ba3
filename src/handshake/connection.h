// Connection: one handshake, from its first datagram to the last: QUIC around TLS, and one question and answer.
#pragma once

#include <ngtcp2/ngtcp2.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"
#include "handshake/connection_ids.h"
#include "handshake/outcome.h"
#include "handshake/quic_path.h"
#include "handshake/tls_session.h"

namespace weir::handshake {

inline constexpr std::size_t kDatagramBytes = 1200;   // what every path carries; we never send more
inline constexpr std::size_t kOfferHeaderBytes = 2;   // length
inline constexpr std::size_t kAnswerHeaderBytes = 3;  // status, length
// What one handshake may take in before it is complete: bounds what a peer can make us buffer and compute.
inline constexpr std::size_t kMaxDatagramsPerHandshake = 128;

// Responder: authorise and negotiate, knowing all of the visitor, the secret included. The error is told to the peer.
using Answer = std::function<Result<std::vector<std::byte>>(const Outcome& visitor)>;
// Initiator: what we say of ourselves, given the credential that it is about. At most kMaxOfferBytes.
using MakeOffer = std::function<std::vector<std::byte>(const CredentialId&)>;

// While nobody answers, QUIC repeats the first flight less and less often. The initiator therefore says its last
// datagram again, as it is, within each kRepeat; a responder that has it already drops the copy before TLS sees it. The
// time is drawn between three quarters of kRepeat and all of it. All initiators of an endpoint together repeat at most
// once per kRepeatSpacing: whoever is due while others are takes a place in the line behind them. One repeats at most
// kMostRepeats times in its time: with a timeout of more than 5 s the interval is longer.
inline constexpr Duration kRepeat = std::chrono::milliseconds(76);  // QUIC's first probe timeout (initial_rtt)
inline constexpr Duration kRepeatSpacing = std::chrono::milliseconds(2);
inline constexpr int kMostRepeats = 88;  // with what QUIC sends and repeats, less than kMaxDatagramsPerHandshake

// The initiator opens one stream and says its offer: u16 length, bytes, end. The responder says u8 status (0, or an
// error's Code), u16 length, then its answer or a sentence, end. The initiator then closes; the responder stays until
// the answer has arrived, to send it again if it was lost.
//
// Owned by an Endpoint and never moved. Ngtcp2's callbacks only take notes; everything is decided after they returned.
class Connection {
 public:
  // The endpoint's, and outlives the connections.
  struct Context {
    ConnectionIds& ids;
    crypto::Entropy& entropy;
    const TlsPolicy& policy;
    WallClock wall_clock;
    KeyLog key_log;
    Answer answer;
    MakeOffer offer;
    Duration timeout;
    Duration initial_rtt;
    Instant next_repeat{};  // the next free place in the line of those that repeat
  };
  struct Request {  // of an initiator
    std::uint64_t tag;
    std::string expected_name;
  };
  struct Arrival {  // of a responder
    const ngtcp2_pkt_hd& header;
    std::optional<ngtcp2_cid> before_retry;  // the id that the client had chosen before it proved its address
  };

  static Result<std::unique_ptr<Connection>> initiate(Context& context, ConnectionIds::Owner owner,
                                                      const Address& remote,
                                                      std::shared_ptr<const Credentials> credentials, Request request,
                                                      Instant now);
  static Result<std::unique_ptr<Connection>> respond(Context& context, ConnectionIds::Owner owner,
                                                     const Address& remote,
                                                     std::shared_ptr<const Credentials> credentials,
                                                     const Arrival& arrival, Instant now);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // `proven`: it names an id of ours, which only somebody who receives at its address can know.
  void receive(ByteSpan datagram, bool proven, Instant now);
  void expire(Instant now);
  // Responder: the visitor has said all that it says, and waits for the answer.
  bool asks() const { return asks_ && !answered_ && !over_; }
  // Asks the application; if asks().
  void give_answer();
  // Nobody waits for an outcome any more. Silently: the peer is told nothing either.
  void abandon();
  void abandon_silently();
  // The next datagram, or 0.
  std::size_t write(MutableByteSpan out, Instant now);
  Instant deadline() const;
  std::optional<Outcome> take_outcome();
  // Why it failed, if that was before its peer showed that it receives at its address: there is no outcome then.
  std::optional<Error> take_unproven_failure() { return std::exchange(unproven_failure_, std::nullopt); }

  bool inbound() const { return role_ == Role::responder; }
  bool heard() const { return heard_; }
  // When something last came that QUIC could use, or was dropped as old: the beginning if nothing has.
  Instant last_received() const { return last_received_; }
  // Of QUIC, without its doubling. Zero if the first answer may be one to a repetition: QUIC then measured too much.
  Duration probe_timeout() const;
  bool established() const { return established_; }
  bool over() const { return over_; }
  // Once it is over: the last datagram, which tells the peer, or 0 if there is nothing to tell.
  std::size_t write_close(MutableByteSpan out, Instant now);

  std::uint64_t tag() const { return tag_; }
  const Address& remote() const { return remote_; }
  // The ids that we chose for it. The owner unregisters them: they may outlive the connection for a while.
  const std::vector<std::uint64_t>& ids() const { return ids_; }

 private:
  enum class Ending : std::uint8_t { silent, application, library };

  Connection(Context& context, Role role, ConnectionIds::Owner owner, const Address& remote, Instant now);
  Result<void> open_session(std::shared_ptr<const Credentials> credentials, std::string expected_name);
  static ngtcp2_callbacks callbacks(Role role);
  ngtcp2_settings settings(Instant now) const;
  ngtcp2_transport_params parameters() const;
  bool issue_id(ngtcp2_cid& cid, std::uint8_t* reset_token);
  void retire_id(const ngtcp2_cid& cid);

  void advance();
  void begin_exchange();
  std::size_t repeat(MutableByteSpan out, Instant now);
  void keep_for_repetition(ByteSpan datagram, Instant now);
  bool takes_turn(Instant now);
  void leave_line();
  void read_answer();
  Result<SecretBytes> parse(std::size_t header_bytes) const;
  void fail(Error error, Ending ending, int library_error = 0);
  void fail_in_library(int library_error);
  void finish(std::optional<Error> failure);

  Context* context_;
  Role role_;
  std::uint64_t tag_ = 0;
  Address remote_;
  ConnectionIds::Owner owner_;
  Instant end_;
  QuicPath path_;
  std::unique_ptr<TlsSession> session_;
  ngtcp2_conn* quic_ = nullptr;
  std::vector<std::uint64_t> ids_;

  SecretBytes outbound_;  // offer or answer, with its header; stays until the end, for retransmission
  std::size_t written_ = 0;
  bool end_written_ = false;
  std::int64_t stream_ = -1;
  SecretBytes inbound_;
  bool inbound_ended_ = false;
  bool inbound_too_large_ = false;

  std::vector<std::byte> unanswered_;  // initiator: the last datagram, while nothing is heard
  bool has_repeated_ = false;
  bool repeats_now_ = false;
  bool is_in_line_ = false;  // repeat_at_ is its place
  Instant repeat_at_ = Instant::never();

  std::size_t datagrams_ = 0;
  Instant last_received_;
  bool heard_ = false;        // something that TLS could use has come
  bool proven_ = false;       // the peer receives at its address
  bool has_keys_ = false;     // of a level above the first
  bool completed_ = false;    // TLS says so
  bool established_ = false;  // and so do we
  bool asks_ = false;
  bool answered_ = false;
  bool stream_closed_ = false;
  std::optional<Error> refused_;  // responder: what the answer said

  Outcome outcome_;
  bool outcome_ready_ = false;
  bool outcome_taken_ = false;
  std::optional<Error> unproven_failure_;

  bool over_ = false;
  Ending ending_ = Ending::silent;
  int library_error_ = 0;
  std::uint64_t close_code_ = 0;
  std::string close_reason_;
};

}  // namespace weir::handshake
