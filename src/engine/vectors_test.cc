// The test vectors of docs/protocol.md against the code that sends such bytes: two engines talk to each other with
// known randoms, and what they say is what the page says. tests/protocol_vectors_test.py computes the same from the
// page alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "base/protocol_page_testing.h"
#include "buffer/seal.h"
#include "crypto/cmac.h"
#include "crypto/hkdf.h"
#include "crypto/reset.h"
#include "engine/large_testing.h"
#include "weir/method.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::EngineAccess;
using weir::testing::ProtocolPage;

template <std::size_t N>
std::array<std::byte, N> counting_from(unsigned first) {
  std::array<std::byte, N> bytes;
  for (std::size_t i = 0; i < N; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

template <class... Parts>
Datagram joined(const Parts&... parts) {
  Datagram all;
  (all.insert(all.end(), parts.begin(), parts.end()), ...);
  return all;
}

// What is asked for counts up from a byte that the test names; each answer serves once.
class KnownEntropy final : public crypto::Entropy {
 public:
  explicit KnownEntropy(std::deque<unsigned> begins) : begins_(std::move(begins)) { crypto::forget_recorded_nonces(); }
  void fill(MutableByteSpan out) override {
    ASSERT_FALSE(begins_.empty()) << "nobody expects that " << out.size() << " more bytes are drawn";
    unsigned next = begins_.front();
    begins_.pop_front();
    for (std::byte& byte : out) byte = static_cast<std::byte>(next++);
  }

 private:
  std::deque<unsigned> begins_;
};

constexpr std::uint16_t kInitiatorPort = 40'000;
constexpr std::uint16_t kResponderPort = 4'433;
constexpr std::uint32_t kInitiatorPath = 0x0102;
constexpr std::uint32_t kResponderPath = 0x0203;
constexpr std::uint64_t kSequence = 17;
constexpr std::size_t kLargeBytes = 100;

crypto::SharedSecret shared() { return crypto::SharedSecret::from_text("correct horse battery staple").value(); }

EngineConfig config_of(bool responds, buffer::Memory& memory) {
  EngineConfig config{.secret = shared(), .name = responds ? "server" : "client"};
  config.incarnation = counting_from<16>(responds ? 0x20 : 0x10);
  config.worker = responds ? 2 : 0;
  config.port = responds ? kResponderPort : kInitiatorPort;
  config.accepts = responds;
  config.datagram_bytes = 1'200;  // no probes of larger ones
  config.memory = &memory;
  config.limits.calls_per_peer = 4'096;
  config.limits.inline_bytes = 16'384;
  return config;
}

// The conversation of the page, one datagram after the other.
class Conversation {
 public:
  Conversation() {
    answer("echo", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      engine.reply(request, {request.delivery.request, request.header_bytes},
                   {request.delivery.request + request.header_bytes, request.bytes - request.header_bytes}, at);
    });
    answer("store", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      const bool opened = request.landing() != nullptr && buffer::open_all(*request.landing());
      engine.reply(request, {}, weir::as_bytes(std::string_view(opened ? "stored" : "damaged")), at);
    });
    take_paths(initiator_, kInitiatorPath);
    take_paths(responder_, kResponderPath);
    submit(first_, address(true), "echo", "to", "hello");
    hello = initiator_turn({});
    now_ = now_ + (kSequence - 1) * std::chrono::microseconds(100);
    EngineAccess::core(responder_).next_sequence = kSequence;
    hello_reply = responder_turn(hello);
    first = initiator_turn(hello_reply);
    answer_to_first = responder_turn(first);
    initiator_turn(answer_to_first, false);
    submit_large();
    opening = initiator_turn({});
    Engine restarted(config_of(true, memory_), responder_entropy_, nullptr, 1, now_);
    unknown_path = turn(restarted, opening, address(false), true);
    grants = responder_turn(opening);
    data = initiator_turn(grants);
    answer_to_data = responder_turn(data);
    initiator_turn(answer_to_data, false);
    initiator_.close(now_);
    close = initiator_turn({});
    EXPECT_EQ(first_.reply, "hello");
    EXPECT_EQ(first_.header, "to");
    EXPECT_EQ(large_.reply, "stored");
  }

  // The text of a sealed packet, opened by whoever receives it, as it was.
  Datagram text_of(Datagram packet, bool from_initiator) const {
    const Datagram key_bytes = control_key(from_initiator, 0);
    crypto::KeyBytes key;
    std::copy(key_bytes.begin(), key_bytes.end(), key.begin());
    const wire::PacketHeader header = wire::decode_header(packet.data());
    const bool is_first = header.type == wire::PacketType::first;
    const std::size_t begin =
        is_first ? wire::decode_first(packet)->bytes : wire::kHeaderBytes + (header.is_data ? 2 : 0);
    const std::size_t bytes = header.is_data ? load<std::uint16_t>(packet.data() + wire::kHeaderBytes)
                                             : packet.size() - begin - wire::kTagBytes;
    const MutableByteSpan text = MutableByteSpan(packet).subspan(begin, bytes);
    const ByteSpan slice = ByteSpan(packet).subspan(begin + bytes + wire::kTagBytes);
    const ByteSpan covered = header.is_data ? slice : ByteSpan(packet).first(begin);
    EXPECT_TRUE(crypto::Aead::create(crypto::default_backend().backend)
                    ->make_key(key)
                    ->open(crypto::make_nonce(header.is_data ? 1 : 0, header.number_low), covered, text,
                           text.data() + text.size()));
    return {text.begin(), text.end()};
  }

  crypto::HandshakeRandom responder_random() const {
    return wire::decode_hello_reply(hello_reply)->reply.responder.random;
  }
  crypto::Secret path_secret() const {
    return crypto::derive_path_secret(shared(), {.initiator_id = weir::as_bytes(std::string_view("client")),
                                                 .responder_id = weir::as_bytes(std::string_view("server")),
                                                 .initiator_incarnation = counting_from<16>(0x10),
                                                 .responder_incarnation = counting_from<16>(0x20),
                                                 .initiator_random = counting_from<32>(0x40),
                                                 .responder_random = responder_random(),
                                                 .initiator_path = kInitiatorPath,
                                                 .responder_path = kSequence});
  }
  Datagram control_key(bool from_initiator, std::uint32_t key_id) const {
    crypto::KeyNames names{.from_initiator = from_initiator,
                           .sender_worker = 0,
                           .sender_port = kInitiatorPort,
                           .receiver_worker = 2,
                           .receiver_port = kResponderPort,
                           .key_id = key_id};
    if (!from_initiator) {
      std::swap(names.sender_worker, names.receiver_worker);
      std::swap(names.sender_port, names.receiver_port);
    }
    return joined(crypto::derive_control_key(path_secret(), names));
  }

  Datagram hello, hello_reply, first, answer_to_first, opening, grants, data, answer_to_data, close, unknown_path;

 private:
  static Address address(bool responder) {
    return Address::v4(responder ? 0x0a000002 : 0x0a000001, responder ? kResponderPort : kInitiatorPort);
  }

  // So that the next one has this number.
  void take_paths(Engine& engine, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_NE(EngineAccess::core(engine).make_path(Address::v4(0x0a000003, 1), false, now_, 0), nullptr);
    }
  }

  template <class Run>
  void answer(std::string_view method, Run) {
    const Handler handler{
        .run = [](void*, transfer::IncomingTransfer& request, Instant at) { Run{}(*answering, request, at); }};
    ASSERT_TRUE(responder_.serve(weir::Method(method).id(), method, handler).has_value());
  }

  void submit(testing::TestCall& call, const Address& to, std::string_view method, std::string_view header,
              std::string_view body) {
    call.method = weir::Method(method).id();
    call.peer = initiator_.connect(to).value();
    call.deadline = now_ + std::chrono::seconds(5);
    call.priority = 3;
    call.bytes = static_cast<std::uint32_t>(header.size() + body.size());
    call.header_bytes = static_cast<std::uint16_t>(header.size());
    std::ranges::copy(std::string(header) + std::string(body), reinterpret_cast<char*>(call.inline_bytes));
    initiator_.submit(call, now_);
  }

  void submit_large() {
    const auto text = counting_from<kLargeBytes>(0);
    buffer::Sealed* const sealed = buffer::seal(memory_, text, counting_from<16>(0xd0), buffer::thread_key());
    large_.method = weir::Method("store").id();
    large_.peer = initiator_.connect(address(true)).value();
    large_.deadline = now_ + std::chrono::seconds(5);
    large_.priority = 3;
    large_.is_large = true;
    large_.block = transfer::load_cargo(initiator_.blocks(), sealed, {.bytes = kLargeBytes}, Pattern::unary,
                                        weir::as_bytes(std::string_view("big")));
    large_.bytes = static_cast<std::uint32_t>(wire::kCargoBytes + 3);
    initiator_.submit(large_, now_);
  }

  Datagram initiator_turn(const Datagram& heard, bool says = true) {
    return turn(initiator_, heard, address(true), says);
  }
  Datagram responder_turn(const Datagram& heard) {
    answering = &responder_;
    return turn(responder_, heard, address(false), true);
  }
  // What an engine says to what it hears, which took 100 us to get there: one datagram.
  Datagram turn(Engine& engine, Datagram heard, const Address& from, bool says) {
    now_ = now_ + std::chrono::microseconds(100);
    if (!heard.empty()) engine.on_datagram(heard, from, 0, nullptr, now_);
    engine.deliver(now_);
    if (!says) return {};
    std::vector<Train> trains;
    engine.collect(trains, now_);
    EXPECT_EQ(trains.size(), 1u);
    if (trains.empty()) return {};
    if (!trains[0].segments.empty()) return joined(trains[0].segments[0].head, trains[0].segments[0].body);
    EXPECT_EQ(trains[0].bytes.size(), trains[0].segment_size);
    return joined(trains[0].bytes);
  }

  static inline Engine* answering = nullptr;
  Instant now_{1'000'000'000};
  KnownEntropy initiator_entropy_{{0x70, 0x40, 0xa0}};
  KnownEntropy responder_entropy_{{0x30, 0x70, 0x00, 0x70}};  // two of each incarnation
  buffer::HeapMemory memory_{std::uint64_t{1} << 30};
  testing::TestCall first_, large_;
  Engine responder_{config_of(true, memory_), responder_entropy_, nullptr, 1, now_};
  Engine initiator_{config_of(false, memory_), initiator_entropy_, nullptr, 1, now_};
};

crypto::Prf::Context initiator_address() {
  crypto::Prf::Context context{};
  const auto bytes = address_bytes(Address::v4(0x0a000001, kInitiatorPort));
  std::copy(bytes.begin(), bytes.end(), context.begin());
  return context;
}

TEST(DocumentedVectors, KeysAreThoseOfThePage) {
  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  const Conversation talk;
  const crypto::Secret path = talk.path_secret();
  page.expect("shared", shared().secret().bytes());
  page.expect("hello key", crypto::derive_hello_key(shared()));
  page.expect("answer key", crypto::derive_answer_key(shared()));
  page.expect("signer", crypto::derive_signer(shared()));
  page.expect("responder's random", talk.responder_random());
  page.expect("fresh",
              crypto::hkdf_extract(joined(counting_from<32>(0x40), talk.responder_random()), shared().secret().bytes())
                  .bytes());
  page.expect("path secret", path.bytes());
  page.expect("control key, from the initiator, key id 0", talk.control_key(true, 0));
  page.expect("control key, from the initiator, key id 1", talk.control_key(true, 1));
  page.expect("control key, from the responder, key id 0", talk.control_key(false, 0));
  page.expect("retire key, from the initiator", crypto::derive_retire_key(path, true));
  page.expect("retire key, from the responder", crypto::derive_retire_key(path, false));
}

TEST(DocumentedVectors, TheRetirementIsThatOfThePage) {
  const auto aead = crypto::Aead::create(crypto::default_backend().backend);
  const auto scratch = aead->make_key(crypto::KeyBytes{});
  PathKeys keys;
  keys.install(*aead, Conversation{}.path_secret(), {.from_initiator = true});
  keys.rotate();
  ProtocolPage(WEIR_PROTOCOL_PAGE)
      .expect("`retire_control_key` of key id 1, from the initiator",
              testing::encoded([&](std::byte* to) { return wire::encode(keys.retirement(*scratch), to); }));
}

TEST(DocumentedVectors, WhatTwoEnginesSayIsThatOfThePage) {
  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  const Conversation talk;
  page.expect("HELLO", talk.hello);
  page.expect("HELLO_REPLY", talk.hello_reply);
  page.expect("FIRST", talk.first);
  page.expect("answer to FIRST", talk.answer_to_first);
  page.expect("opening of a large request", talk.opening);
  page.expect("grants", talk.grants);
  page.expect("data packet", talk.data);
  page.expect("answer to the data packet", talk.answer_to_data);
  page.expect("closing packet", talk.close);
  page.expect("frames of FIRST", talk.text_of(talk.first, true));
  page.expect("frames of the answer to FIRST", talk.text_of(talk.answer_to_first, false));
  page.expect("frames of the opening", talk.text_of(talk.opening, true));
  page.expect("frames of the grants", talk.text_of(talk.grants, false));
  page.expect("frames of the data packet", talk.text_of(talk.data, true));
  page.expect("frames of the answer to the data packet", talk.text_of(talk.answer_to_data, false));
  page.expect("frames of the closing packet", talk.text_of(talk.close, true));
}

TEST(DocumentedVectors, RecordsAreThoseOfThePage) {
  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  buffer::HeapMemory memory{std::uint64_t{1} << 30};
  const auto seal = [&](ByteSpan text) {
    return buffer::seal(memory, text, counting_from<16>(0xd0), buffer::thread_key());
  };
  // One record of 100 bytes; and the second of a payload of which it is the last five. Two payloads of one key: on the
  // page only.
  crypto::forget_recorded_nonces();
  buffer::Sealed* const one = seal(counting_from<kLargeBytes>(0));
  page.expect("record 0 of 100 bytes `00 01 ... 63`", joined(one->at(0)));
  page.expect("its tag", ByteSpan(one->tag_of(0), crypto::kTagBytes));
  std::string text(buffer::kRecordBytes, '\0');
  crypto::forget_recorded_nonces();
  buffer::Sealed* const two = seal(weir::as_bytes(text += "weir!"));
  page.expect("record 1 of 61,440 zeros and `weir!`", joined(two->at(buffer::kRecordBytes)));
  page.expect("the tag of record 1", ByteSpan(two->tag_of(1), crypto::kTagBytes));
  page.expect("digest of the binding `weir!` (G-2)", buffer::binding_digest(weir::as_bytes(std::string_view("weir!"))));
  page.expect("digest of an empty binding", buffer::binding_digest({}));
  for (buffer::Sealed* sealed : {one, two}) buffer::give_back(sealed, {.begin = 0, .end = 1});
}

TEST(DocumentedVectors, FramesAreThoseOfThePage) {
  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  constexpr wire::TransferId kId{7, 0x123456789};
  constexpr std::uint64_t kRegion = 0x0000'0500'0002;
  wire::AckFrame ack{.largest = 1'000, .delay_us = 250, .ect0 = 990, .ce = 2, .has_ecn = true, .count = 2};
  ack.ranges[0] = {996, 1'000};
  ack.ranges[1] = {900, 993};
  page.expect("`ack`", testing::encoded([&](std::byte* to) { return wire::encode(ack, to); }));
  const wire::RequestFrame fragment{.part = {.id = kId,
                                             .bytes = weir::as_bytes(std::string_view("middle")),
                                             .header_bytes = 16,
                                             .total = 1'500,
                                             .offset = 1'000},
                                    .method = weir::Method("echo").id(),
                                    .time_left_us = ~std::uint32_t{0},
                                    .priority = 5,
                                    .depth = 1};
  page.expect("fragment of a `request`", testing::encoded([&](std::byte* to) { return wire::encode(fragment, to); }));
  const std::string error("\x05\x00not now", 9);
  const wire::ReplyFrame failed{.part = {.id = kId, .bytes = weir::as_bytes(error), .total = 9}, .failed = true};
  page.expect("failed `reply`", testing::encoded([&](std::byte* to) { return wire::encode(failed, to); }));
  const wire::CancelFrame cancel{.id = kId, .level = 1, .total = 1'500};
  page.expect("`cancel`", testing::encoded([&](std::byte* to) { return wire::encode(cancel, to); }));
  page.expect("`credit`", testing::encoded([&](std::byte* to) {
                return wire::encode_level(wire::FrameType::credit, 0, 131'072, to);
              }));
  const wire::BlockedFrame blocked{.level = 1, .priority = 5, .needed = 40'000};
  page.expect("`blocked`", testing::encoded([&](std::byte* to) { return wire::encode(blocked, to); }));
  page.expect("`region_revoke`",
              testing::frame_of(wire::RevokeFrame{.side = wire::Side::request, .id = kId, .region = kRegion}));
  page.expect("`region_exhausted`", testing::frame_of(wire::FrameType::region_exhausted,
                                                      {.side = wire::Side::request, .id = kId, .value = 800}));
  page.expect("`range_ack`", testing::frame_of(wire::RangeAckFrame{
                                 .side = wire::Side::reply, .id = kId, .region = kRegion, .bytes = 3'000'000}));
}

TEST(DocumentedVectors, MethodsAreThoseOfThePage) {
  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  for (const std::string method : {"echo", "weir.bulk.ask", "weir.bulk.put", "weir.bulk.get"}) {
    std::array<std::byte, 8> id;
    store(id.data(), weir::Method(std::string_view(method)).id());
    page.expect("`" + method + "`", id);
  }
}

// The signer of the shared secret; credential b0 b1 ... bf.
TEST(DocumentedVectors, ResetKeysAndTheirAnswersAreThoseOfThePage) {
  const ProtocolPage page(WEIR_PROTOCOL_PAGE);
  const auto aead = crypto::Aead::create(crypto::default_backend().backend);
  const crypto::Prf signer(*aead, crypto::derive_signer(shared()));
  crypto::Prf scratch(*aead, crypto::KeyBytes{});
  const crypto::KeyBytes of_path = crypto::path_reset_key(signer, kResponderPath, initiator_address());
  page.expect("reset key of the responder's path", of_path);
  const auto credential = counting_from<16>(0xb0);
  const crypto::KeyBytes of_credential = crypto::credential_reset_key(signer, credential);
  page.expect("reset key of the credential", of_credential);
  std::array<std::byte, 8> order;
  store(order.data(), crypto::derive_order(shared().secret()));
  page.expect("order (K-3) of the shared secret", order);

  std::byte unknown[wire::kUnknownSecretBytes];
  const std::size_t bytes = wire::encode(wire::UnknownSecret{.to_path = kInitiatorPath,
                                                             .worker = 2,
                                                             .port = 4433,
                                                             .echo = counting_from<16>(0x40),
                                                             .credential = credential},
                                         unknown);
  const std::array<std::byte, 4> who{std::byte{2}, std::byte{0}, std::byte{0x51}, std::byte{0x11}};
  constexpr std::uint64_t kUnknownSecret = std::uint64_t{1} << 32;
  page.expect(
      "UNKNOWN_SECRET in answer to the hello",
      joined(std::span(unknown).first(bytes), crypto::reset_tag(scratch, of_credential, kUnknownSecret | kInitiatorPath,
                                                                joined(counting_from<16>(0x40), who))));
  page.expect("UNKNOWN_PATH in answer to the opening", Conversation{}.unknown_path);
}

}  // namespace
}  // namespace weir::engine
