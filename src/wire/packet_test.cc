// The layouts of datagrams (docs/protocol.md, rules P-2, H-1 to H-3, R-2 and R-4).
#include "wire/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "wire/wire_testing.h"

namespace weir::wire {
namespace {

constexpr std::uint32_t kMax32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kIntroductionBytes = 4 + 2 + 2 + 32 + 16 + 1;  // without the name

ByteSpan bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

Introduction introduction(const std::string& name, std::uint8_t fill) {
  Introduction out{.path = kMax32 - fill,
                   .worker = static_cast<std::uint16_t>(fill == 0 ? 0 : 0xffff),
                   .port = static_cast<std::uint16_t>(0x1100 + fill),
                   .name = bytes_of(name)};
  out.random.fill(static_cast<std::byte>(fill));
  out.random[0] = std::byte{0x5a};
  out.random[31] = std::byte{0xa5};
  out.incarnation.fill(static_cast<std::byte>(fill + 1));
  out.incarnation[15] = std::byte{0xc3};
  return out;
}

void expect_same(const Introduction& left, const Introduction& right) {
  EXPECT_EQ(left.path, right.path);
  EXPECT_EQ(left.worker, right.worker);
  EXPECT_EQ(left.port, right.port);
  EXPECT_EQ(left.random, right.random);
  EXPECT_EQ(left.incarnation, right.incarnation);
  EXPECT_TRUE(std::equal(left.name.begin(), left.name.end(), right.name.begin(), right.name.end()));
}

const std::string kNames[] = {"", "a", "client.example", std::string(kMaxNameBytes, 'n')};

CredentialId credential(std::uint8_t seed) {
  CredentialId id;
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(seed + i);
  return id;
}

TEST(PacketHeader, EveryFieldSurvivesARoundTripAtItsBounds) {
  for (const PacketType type : {PacketType::sealed, PacketType::first, PacketType::hello, PacketType::hello_reply}) {
    for (const std::uint8_t key_low : {0, 1, 31}) {
      for (const std::uint32_t number_low : {0u, 1u, 0x00ffffu, 0xffffffu}) {
        for (const std::uint32_t path : {0u, 1u, kMax32}) {
          std::byte bytes[kHeaderBytes];
          encode(PacketHeader{.type = type, .key_low = key_low, .number_low = number_low, .path = path}, bytes);
          const PacketHeader back = decode_header(bytes);
          EXPECT_EQ(back.type, type);
          EXPECT_EQ(back.key_low, key_low);
          EXPECT_EQ(back.number_low, number_low);
          EXPECT_EQ(back.path, path);
        }
      }
    }
  }
}

TEST(PacketHeader, HasTheBitsThatTheDocumentPromises) {
  std::byte bytes[kHeaderBytes];
  encode(
      PacketHeader{
          .type = PacketType::first, .key_low = 0x0a, .is_data = true, .number_low = 0x030201, .path = 0x07060504},
      bytes);
  const std::uint8_t expected[] = {0xa9, 1, 2, 3, 4, 5, 6, 7};
  for (std::size_t i = 0; i < kHeaderBytes; ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << "byte " << i;
}

TEST(PacketHeader, EveryPossibleFirstByteDecodesAndEncodesBack) {
  for (int first = 0; first < 256; ++first) {
    std::byte bytes[kHeaderBytes] = {static_cast<std::byte>(first)};
    std::byte back[kHeaderBytes];
    encode(decode_header(bytes), back);
    EXPECT_EQ(bytes[0], back[0]);
  }
}

// The type bits of the plain datagrams and of the header are the same ones.
TEST(PacketHeader, TellsHellosFromPackets) {
  std::byte bytes[kHelloBytes];
  encode(Hello{}, bytes);
  EXPECT_EQ(decode_header(bytes).type, PacketType::hello);
  encode(HelloReply{}, bytes);
  EXPECT_EQ(decode_header(bytes).type, PacketType::hello_reply);
}

TEST(Hello, SurvivesARoundTrip) {
  for (const std::string& name : kNames) {
    const Hello hello{.initiator = introduction(name, 3), .credential = credential(9)};
    Bytes bytes(kHelloBytes, std::byte{0xee});
    ASSERT_EQ(encode(hello, bytes.data()), kHelloBytes);
    const ExactCopy copy(bytes);
    const auto back = decode_hello(copy.span());
    ASSERT_TRUE(back.has_value());
    expect_same(hello.initiator, back->initiator);
    EXPECT_EQ(hello.credential, back->credential);
  }
}

TEST(Hello, OfAnotherKindIsNotOne) {
  Bytes bytes(kHelloBytes);
  encode(Hello{.initiator = introduction("a", 3)}, bytes.data());
  bytes[0] = kUnknownSecretByte;
  EXPECT_FALSE(decode_hello(bytes).has_value());
}

TEST(UnknownSecret, SurvivesARoundTripAndNoOtherLength) {
  UnknownSecret unknown{.to_path = kMax32 - 1, .worker = 0xfffe, .port = 0x1234, .credential = credential(5)};
  unknown.echo.fill(std::byte{0x77});
  Bytes bytes(kUnknownSecretBytes + 1);
  ASSERT_EQ(encode(unknown, bytes.data()), kUnknownSecretBytes - kTagBytes);
  const auto back = decode_unknown_secret(ByteSpan(bytes).first(kUnknownSecretBytes));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->to_path, unknown.to_path);
  EXPECT_EQ(back->echo, unknown.echo);
  EXPECT_EQ(back->credential, unknown.credential);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    if (size == kUnknownSecretBytes) continue;
    EXPECT_FALSE(decode_unknown_secret(
        ExactCopy(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size))).span()));
  }
  bytes[1] = static_cast<std::byte>(kVersion + 1);
  EXPECT_FALSE(decode_unknown_secret(ByteSpan(bytes).first(kUnknownSecretBytes)));
}

TEST(UnknownPath, SurvivesARoundTripAndIsSmallerThanAnyPacket) {
  Bytes bytes(kUnknownPathBytes);
  ASSERT_EQ(encode(UnknownPath{.number_low = 0xabcdef, .path = kMax32 - 7}, bytes.data()),
            kUnknownPathBytes - kTagBytes);
  const auto back = decode_unknown_path(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->number_low, 0xabcdefu);
  EXPECT_EQ(back->path, kMax32 - 7);
  EXPECT_FALSE(decode_unknown_path(ByteSpan(bytes).first(kUnknownPathBytes - 1)));
  bytes[0] = std::byte{3};
  EXPECT_FALSE(decode_unknown_path(bytes));
}

TEST(Hello, IsPaddedWithZerosAndNothingOfTheSendersMemory) {
  Bytes bytes(kHelloBytes, std::byte{0xee});
  encode(Hello{.initiator = introduction("", 0)}, bytes.data());
  EXPECT_TRUE(std::all_of(bytes.begin() + 2 + kIntroductionBytes, bytes.end(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(Hello, IsRejectedWhereverItIsCut) {
  Bytes bytes(kHelloBytes);
  encode(Hello{.initiator = introduction(kNames[3], 3)}, bytes.data());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const ExactCopy cut(ByteSpan(bytes).first(size));
    EXPECT_FALSE(decode_hello(cut.span()).has_value()) << size;
  }
}

TEST(Hello, OfAnotherVersionIsRejected) {
  Bytes bytes(kHelloBytes);
  encode(Hello{}, bytes.data());
  for (const int version : {0, 2, 255}) {
    bytes[1] = static_cast<std::byte>(version);
    EXPECT_FALSE(decode_hello(bytes).has_value());
  }
}

TEST(Hello, WithATooLongNameIsRejected) {
  Bytes bytes(kHelloBytes);
  encode(Hello{}, bytes.data());
  const std::size_t length_at = 2 + kIntroductionBytes - 1;
  bytes[length_at] = static_cast<std::byte>(kMaxNameBytes);
  EXPECT_TRUE(decode_hello(bytes).has_value());
  for (const std::size_t length : {kMaxNameBytes + 1, std::size_t{255}}) {
    bytes[length_at] = static_cast<std::byte>(length);
    EXPECT_FALSE(decode_hello(bytes).has_value());
  }
}

HelloReply largest_reply(const std::string& name) {
  HelloReply reply{.to_path = kMax32,
                   .sequence = kMax64,
                   .responder = introduction(name, 9),
                   .calls = kMax32,
                   .inline_bytes = kMax32 - 1,
                   .allowance = kMax32 - 2,
                   .nested_allowance = kMax32 - 3};
  reply.echo.fill(std::byte{0x77});
  return reply;
}

Bytes with_tag(const HelloReply& reply) {
  Bytes bytes(kHelloBytes + kTagBytes);
  const std::size_t size = encode(reply, bytes.data());
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(size), kTagBytes, std::byte{0x99});
  bytes.resize(size + kTagBytes);
  return bytes;
}

TEST(HelloReply, SurvivesARoundTrip) {
  for (const std::string& name : kNames) {
    const HelloReply reply = largest_reply(name);
    const ExactCopy copy(with_tag(reply));
    const auto back = decode_hello_reply(copy.span());
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->reply.to_path, reply.to_path);
    EXPECT_EQ(back->reply.sequence, reply.sequence);
    EXPECT_EQ(back->reply.echo, reply.echo);
    expect_same(reply.responder, back->reply.responder);
    EXPECT_EQ(back->reply.calls, reply.calls);
    EXPECT_EQ(back->reply.inline_bytes, reply.inline_bytes);
    EXPECT_EQ(back->reply.allowance, reply.allowance);
    EXPECT_EQ(back->reply.nested_allowance, reply.nested_allowance);
  }
}

TEST(HelloReply, ItsTagIsTheEndAndCoversAllBeforeIt) {
  const Bytes bytes = with_tag(largest_reply("r"));
  const auto back = decode_hello_reply(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->authenticated.data(), bytes.data());
  EXPECT_EQ(back->authenticated.size(), bytes.size() - kTagBytes);
  EXPECT_EQ(back->tag, bytes.data() + bytes.size() - kTagBytes);
}

TEST(HelloReply, IsNeverLargerThanTheHelloItAnswers) {
  EXPECT_LE(with_tag(largest_reply(kNames[3])).size(), kHelloBytes);
}

TEST(HelloReply, IsRejectedWhereverItIsCutAndWithAnythingBehindIt) {
  for (const std::string& name : kNames) {
    Bytes bytes = with_tag(largest_reply(name));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const ExactCopy cut(ByteSpan(bytes).first(size));
      EXPECT_FALSE(decode_hello_reply(cut.span()).has_value()) << size;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode_hello_reply(bytes).has_value());
  }
}

TEST(HelloReply, OfAnotherVersionOrWithATooLongNameIsRejected) {
  Bytes bytes = with_tag(largest_reply(""));
  bytes[1] = std::byte{2};
  EXPECT_FALSE(decode_hello_reply(bytes).has_value());
  bytes[1] = static_cast<std::byte>(kVersion);
  bytes[32 + kIntroductionBytes - 1] = static_cast<std::byte>(kMaxNameBytes + 1);
  bytes.resize(bytes.size() + kMaxNameBytes + 1);
  EXPECT_FALSE(decode_hello_reply(bytes).has_value());
}

// Header, prefix with its tag, and a ciphertext of `text` bytes with its own tag.
Bytes first_packet(const FirstPrefix& prefix, std::size_t text) {
  Bytes bytes(kHeaderBytes + kMaxPrefixBytes + text + kTagBytes, std::byte{0x33});
  encode(PacketHeader{.type = PacketType::first, .path = prefix.initiator.path}, bytes.data());
  const std::size_t size = encode(prefix, bytes.data() + kHeaderBytes);
  EXPECT_LE(size + kTagBytes, kMaxPrefixBytes);
  bytes.resize(kHeaderBytes + size + kTagBytes + text + kTagBytes);
  return bytes;
}

FirstPrefix prefix_of(const std::string& name) {
  FirstPrefix prefix{.sequence = kMax64 - 1, .allowance = kMax32, .initiator = introduction(name, 1)};
  prefix.nonce.fill(std::byte{0x44});
  prefix.credential = credential(0x30);
  return prefix;
}

TEST(FirstPrefix, SurvivesARoundTrip) {
  for (const std::string& name : kNames) {
    const FirstPrefix prefix = prefix_of(name);
    const Bytes bytes = first_packet(prefix, 1);
    const ExactCopy copy(bytes);
    const auto back = decode_first(copy.span());
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->prefix.sequence, prefix.sequence);
    EXPECT_EQ(back->prefix.allowance, prefix.allowance);
    EXPECT_EQ(back->prefix.nonce, prefix.nonce);
    EXPECT_EQ(back->prefix.credential, prefix.credential);
    expect_same(prefix.initiator, back->prefix.initiator);
    EXPECT_EQ(back->bytes, bytes.size() - 1 - kTagBytes);
    EXPECT_EQ(back->authenticated.data(), copy.span().data() + kHeaderBytes);
    EXPECT_EQ(back->authenticated.size(), back->bytes - kHeaderBytes - kTagBytes);
    EXPECT_EQ(back->tag, copy.span().data() + back->bytes - kTagBytes);
  }
}

TEST(FirstPrefix, TheLongestOneFillsItsBoundExactly) {
  const Bytes bytes = first_packet(prefix_of(kNames[3]), 0);
  EXPECT_EQ(bytes.size(), kHeaderBytes + kMaxPrefixBytes + kTagBytes);
}

TEST(FirstPrefix, IsRejectedWhereverThePacketIsCut) {
  for (const std::string& name : kNames) {
    const Bytes bytes = first_packet(prefix_of(name), 1);  // the smallest ciphertext there is
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const ExactCopy cut(ByteSpan(bytes).first(size));
      EXPECT_FALSE(decode_first(cut.span()).has_value()) << size;
    }
  }
}

TEST(FirstPrefix, WithATooLongNameIsRejected) {
  Bytes bytes = first_packet(prefix_of(""), 500);
  const std::size_t length_at = kHeaderBytes + 8 + 4 + kIntroductionBytes - 1;
  ASSERT_EQ(bytes[length_at], std::byte{0});
  bytes[length_at] = static_cast<std::byte>(kMaxNameBytes);
  EXPECT_TRUE(decode_first(bytes).has_value());
  bytes[length_at] = static_cast<std::byte>(kMaxNameBytes + 1);
  EXPECT_FALSE(decode_first(bytes).has_value());
}

TEST(Datagrams, ArbitraryBytesNeverReadBeyondTheirEnd) {
  Random random(3);
  int hellos = 0;
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(random.below(400));
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
    if (bytes.size() > 2 && random.chance(0.8)) {
      bytes[0] = static_cast<std::byte>(2 + random.below(6));
      bytes[1] = static_cast<std::byte>(kVersion);
    }
    const ExactCopy copy(bytes);
    if (const auto hello = decode_hello(copy.span())) {
      ++hellos;
      EXPECT_LE(hello->initiator.name.size(), kMaxNameBytes);
    }
    decode_hello_reply(copy.span());
    decode_unknown_secret(copy.span());
    decode_unknown_path(copy.span());
    if (const auto first = decode_first(copy.span())) {
      EXPECT_LT(first->bytes + kTagBytes, bytes.size());
    }
  }
  EXPECT_GT(hellos, 100);
}

}  // namespace
}  // namespace weir::wire
