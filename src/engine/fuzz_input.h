// What a fuzzer's bytes mean to engine_fuzz: numbers, texts, and datagrams of the handshake.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "engine/hostile_testing.h"
#include "wire/packet.h"

namespace weir::engine::testing {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  std::uint16_t word() {
    const std::uint8_t low = byte();
    return static_cast<std::uint16_t>(low | byte() << 8);
  }
  // Small numbers mostly, the far ends of the range sometimes.
  std::uint64_t number() {
    const std::uint8_t kind = byte();
    if (kind < 0xc0) return kind;
    if (kind < 0xe0) return word();
    std::uint64_t value = ~std::uint64_t{0};
    if (kind < 0xf0) return value - byte();
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  std::string text(std::size_t most) {
    std::string out;
    for (std::size_t size = std::min<std::size_t>({word(), most, left_}); size > 0; --size) {
      out.push_back(static_cast<char>(byte()));
    }
    return out;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

// One that is well formed and proves nothing: its tag is zeros. The credential is one that Identities may have handed
// out, and the path may be the one of `path`.
inline Datagram greeting(Input& input, std::uint32_t path) {
  const std::uint8_t kind = input.byte();
  const std::uint64_t sequence = input.number();
  if ((kind & 8) != 0) path = static_cast<std::uint32_t>(input.number());
  wire::CredentialId credential;
  credential.fill(static_cast<std::byte>(input.byte()));
  const std::string name = input.text(wire::kMaxNameBytes);
  wire::Introduction self{.path = path, .port = 7, .name = as_bytes(name)};
  self.random.fill(static_cast<std::byte>(input.byte()));
  self.incarnation.fill(static_cast<std::byte>(input.byte()));
  Datagram bytes(wire::kHeaderBytes + wire::kHelloBytes);
  switch (kind & 3) {
    case 0:
      bytes.resize(wire::encode(wire::Hello{.initiator = self, .credential = credential}, bytes.data()));
      break;
    case 1:
      wire::encode(wire::PacketHeader{.type = wire::PacketType::first}, bytes.data());
      wire::encode(wire::FirstPrefix{.sequence = sequence, .initiator = self, .credential = credential},
                   bytes.data() + wire::kHeaderBytes);
      break;
    case 2:
      bytes.resize(
          wire::encode(wire::HelloReply{.to_path = path, .sequence = sequence, .responder = self}, bytes.data()) +
          wire::kTagBytes);
      break;
    default:
      if ((kind & 4) != 0) {
        bytes.resize(wire::kUnknownPathBytes);
        wire::encode(wire::UnknownPath{.number_low = static_cast<std::uint32_t>(sequence & 0xffffff), .path = path},
                     bytes.data());
      } else {
        bytes.resize(wire::kUnknownSecretBytes);
        wire::encode(wire::UnknownSecret{.to_path = path, .credential = credential}, bytes.data());
      }
  }
  return bytes;
}

}  // namespace weir::engine::testing
