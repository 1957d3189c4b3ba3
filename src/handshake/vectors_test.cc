// What docs/protocol.md says about the handshake of identities, shown to a peer that knows nothing of us: its test
// vectors, transport parameters, and how a handshake ends (I-1, I-4 to I-6).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/protocol_page_testing.h"
#include "crypto/hkdf.h"
#include "handshake/endpoint.h"
#include "handshake/endpoint_testing.h"
#include "handshake/offer.h"
#include "handshake/raw_peer_testing.h"

namespace weir::handshake::testing {
namespace {

using ::testing::HasSubstr;
using weir::testing::ProtocolPage;

using Bytes = std::vector<std::byte>;

template <class Array>
Array counting_from(unsigned first) {
  Array bytes;
  for (auto& byte : bytes) byte = static_cast<std::byte>(first++);
  return bytes;
}

Offer documented_offer() {
  Offer offer;
  offer.incarnation = counting_from<crypto::Incarnation>(0x10);
  offer.name = "client";
  offer.workers = {{.worker = 0, .nic = 0, .port = 5001},
                   {.worker = 1, .nic = 1, .port = 5002, .ip = Address::parse("10.0.0.8:0").value().ip}};
  offer.transports = static_cast<std::uint32_t>(Transport::udp);
  offer.mtu = 8'972;
  offer.reset_key = counting_from<crypto::KeyBytes>(0xe0);
  return offer;
}

// RFC 8446, section 7.1, with SHA-256.
Bytes expand_label(const crypto::Secret& secret, std::string_view label, ByteSpan context, std::size_t size) {
  Bytes info{static_cast<std::byte>(size >> 8), static_cast<std::byte>(size), static_cast<std::byte>(6 + label.size())};
  for (const std::string_view part : {std::string_view("tls13 "), label}) {
    for (const char c : part) info.push_back(static_cast<std::byte>(c));
  }
  info.push_back(static_cast<std::byte>(context.size()));
  info.insert(info.end(), context.begin(), context.end());
  Bytes out(size);
  crypto::hkdf_expand(secret, info, out);
  return out;
}

// RFC 8446, section 7.5, with an empty context.
Bytes exported(const crypto::Secret& exporter, std::string_view label, std::size_t size) {
  Bytes nothing(32);  // its hash
  gnutls_hash_fast(GNUTLS_DIG_SHA256, "", 0, nothing.data());
  crypto::Secret derived;
  std::ranges::copy(expand_label(exporter, label, nothing, 32), derived.writable().begin());
  return expand_label(derived, "exporter", nothing, size);
}

crypto::Secret secret_from_hex(std::string_view text) {
  crypto::Secret secret;
  for (std::size_t i = 0; i < 32; ++i) {
    secret.writable()[i] = static_cast<std::byte>(std::stoi(std::string(text.substr(2 * i, 2)), nullptr, 16));
  }
  return secret;
}

// The exporter of TLS is the library's; that it is the one of RFC 8446 is shown against what the session logs.
TEST(DocumentedHandshake, ACredentialIsWhatThePageDerivesFromTheExporterSecret) {
  std::map<std::string, std::string> secrets;
  Pair pair(1, {}, [&](auto& ours, auto&) {
    ours.key_log = [&](std::string_view line) {
      secrets.emplace(line.substr(0, line.find(' ')), line.substr(line.rfind(' ') + 1));
    };
  });
  ASSERT_TRUE(pair.connect());
  pair.network.run();
  const auto outcomes = pair.client->outcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  ASSERT_TRUE(secrets.contains("EXPORTER_SECRET"));
  const crypto::Secret exporter = secret_from_hex(secrets["EXPORTER_SECRET"]);
  EXPECT_TRUE(std::ranges::equal(exported(exporter, "EXPORTER-weir-1-secret", 32), outcomes[0].secret.bytes()));
  EXPECT_TRUE(std::ranges::equal(exported(exporter, "EXPORTER-weir-1-id", 16), outcomes[0].credential));

  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  crypto::Secret known;
  std::ranges::copy(counting_from<std::array<std::byte, 32>>(0x80), known.writable().begin());
  page.expect("secret of the credential", exported(known, "EXPORTER-weir-1-secret", 32));
  page.expect("id of the credential", exported(known, "EXPORTER-weir-1-id", 16));
}

struct WithRawResponder {
  explicit WithRawResponder(Bytes words)
      : pair(1, {},
             [](auto& ours, auto&) { ours.offer = [](const CredentialId&) { return *encode(documented_offer()); }; }),
        responder({.role = Role::responder, .credentials = server_credentials(), .words = std::move(words)},
                  kClientAddress, pair.network.now()) {
    pair.network.add(kServerAddress, responder);
    EXPECT_TRUE(pair.connect());
    pair.network.run();
  }
  Pair pair;
  RawPeer responder;
};

struct WithRawInitiator {
  explicit WithRawInitiator(Answer answer)
      : pair(1, {}, [&](auto&, auto& theirs) { theirs.answer = std::move(answer); }),
        initiator({.credentials = client_credentials(), .words = bytes_of(std::string("\x01\x00x", 3))}, kServerAddress,
                  pair.network.now()) {
    pair.network.add(kClientAddress, initiator);
    pair.network.run();
  }
  Pair pair;
  RawPeer initiator;
};

void expect_common(const ngtcp2_transport_params& told) {
  EXPECT_EQ(told.initial_max_data, 16'384u);
  EXPECT_EQ(told.initial_max_stream_data_bidi_local, 16'384u);
  EXPECT_EQ(told.initial_max_stream_data_bidi_remote, 16'384u);
  EXPECT_EQ(told.initial_max_streams_uni, 0u);
  EXPECT_EQ(told.max_idle_timeout, 5u * NGTCP2_SECONDS);
  EXPECT_EQ(told.max_udp_payload_size, 1'200u);
  EXPECT_EQ(told.active_connection_id_limit, 2u);
  EXPECT_EQ(told.disable_active_migration, 1);
}

TEST(DocumentedHandshake, TheInitiatorSaysItsOfferAndClosesWithCodeZero) {
  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  page.expect("offer", *encode(documented_offer()));
  const WithRawResponder talk(bytes_of(std::string("\0\1\0x", 4)));
  page.expect("offer on the stream", talk.responder.heard);
  EXPECT_FALSE(talk.responder.heard_a_server_name());
  EXPECT_EQ(talk.responder.close_code, 0u);
  EXPECT_TRUE(talk.responder.close_is_application);
  EXPECT_EQ(talk.responder.close_reason, "");
  ASSERT_TRUE(talk.responder.told);
  expect_common(*talk.responder.told);
  EXPECT_EQ(talk.responder.told->initial_max_streams_bidi, 0u);
}

TEST(DocumentedHandshake, TheInitiatorClosesWithCodeZeroAfterARefusalToo) {
  const WithRawResponder talk(bytes_of(std::string("\5\1\0x", 4)));
  EXPECT_EQ(talk.responder.close_code, 0u);
  EXPECT_TRUE(talk.responder.close_is_application);
}

TEST(DocumentedHandshake, AnAnswerThatMakesNoSenseIsClosedWithACodeAndASentence) {
  const WithRawResponder talk(bytes_of(std::string("\0\2\0x", 4)));
  EXPECT_EQ(talk.responder.close_code, static_cast<std::uint64_t>(Code::invalid_argument));
  EXPECT_TRUE(talk.responder.close_is_application);
  EXPECT_THAT(talk.responder.close_reason, HasSubstr("another length"));
}

TEST(DocumentedHandshake, TheResponderAnswersOnTheStream) {
  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  const WithRawInitiator talk([](const Outcome&) -> Result<Bytes> { return encode(documented_offer()); });
  page.expect("answer on the stream, with the same offer", talk.initiator.heard);
  ASSERT_TRUE(talk.initiator.told);
  expect_common(*talk.initiator.told);
  EXPECT_EQ(talk.initiator.told->initial_max_streams_bidi, 1u);
  const WithRawInitiator refused(
      [](const Outcome&) -> Result<Bytes> { return std::unexpected(Error(Code::refused, "not you")); });
  page.expect("refusal on the stream: `refused`, \"not you\"", refused.initiator.heard);
  EXPECT_FALSE(refused.initiator.close_code);
}

// A responder that is asked for another name than it has, or shows no certificate; an initiator of another protocol, of
// none, or with a certificate of strangers.
TEST(DocumentedHandshake, WhatTlsRefusesIsAnAlertWithASentence) {
  constexpr std::uint64_t kAlert = 0x100;
  const auto close_of = [](RawPeer::Options options, std::string expected_name = "") {
    Pair pair;
    const bool responds = options.role == Role::responder;
    RawPeer peer(std::move(options), responds ? kClientAddress : kServerAddress, pair.network.now());
    pair.network.add(responds ? kServerAddress : kClientAddress, peer);
    if (responds) {
      EXPECT_TRUE(pair.connect(1, std::move(expected_name)));
    }
    pair.network.run();
    EXPECT_FALSE(peer.close_reason.empty());
    return std::pair(peer.close_code.value_or(~std::uint64_t{0}), peer.close_is_application);
  };
  const auto strangers = make_credentials(make_authority("stranger"), {"client.example", "10.0.0.1"});
  const auto alert = [](std::uint64_t code) { return std::pair(kAlert + code, false); };
  EXPECT_EQ(close_of({.role = Role::responder, .credentials = server_credentials()}, "other.example"), alert(42));
  EXPECT_EQ(close_of({.credentials = strangers}), alert(42));
  EXPECT_EQ(close_of({}), alert(116));
  EXPECT_EQ(close_of({.protocol = "h3", .credentials = client_credentials()}), alert(120));
  EXPECT_EQ(close_of({.priority = "NORMAL:-VERS-ALL:+VERS-TLS1.2", .credentials = client_credentials()}), alert(40));
  EXPECT_EQ(close_of({.protocol = "", .credentials = client_credentials()}),
            std::pair(static_cast<std::uint64_t>(Code::refused), true));
}

TEST(DocumentedHandshake, AServerNameIsIgnored) {
  const Bytes offer = bytes_of(std::string("\x01\x00x", 3));
  Pair pair;
  RawPeer peer({.credentials = client_credentials(), .words = offer, .server_name = "another.example"}, kServerAddress,
               pair.network.now());
  pair.network.add(kClientAddress, peer);
  pair.network.run();
  EXPECT_EQ(text_of(peer.heard).substr(3), "answer");
}

}  // namespace
}  // namespace weir::handshake::testing
