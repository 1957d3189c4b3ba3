#include "wire/packet.h"

#include <cstring>

namespace weir::wire {

namespace {

// A bounded reader: after a short read everything reads as zero and ok() is false.
class Reader {
 public:
  explicit Reader(ByteSpan bytes) : bytes_(bytes) {}
  template <class T>
  T take() {
    if (bytes_.size() - at_ < sizeof(T)) return fail<T>();
    at_ += sizeof(T);
    return load<T>(bytes_.data() + at_ - sizeof(T));
  }
  template <std::size_t N>
  std::array<std::byte, N> take_array() {
    std::array<std::byte, N> out{};
    const ByteSpan from = take_bytes(N);
    if (from.size() == N) std::memcpy(out.data(), from.data(), N);
    return out;
  }
  ByteSpan take_bytes(std::size_t count) {
    if (bytes_.size() - at_ < count) {
      ok_ = false;
      at_ = bytes_.size();
      return {};
    }
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  bool ok() const { return ok_; }
  std::size_t at() const { return at_; }

 private:
  template <class T>
  T fail() {
    ok_ = false;
    at_ = bytes_.size();
    return T{};
  }
  ByteSpan bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

class Writer {
 public:
  explicit Writer(std::byte* to) : begin_(to), at_(to) {}
  template <class T>
  void put(T value) {
    store<T>(at_, value);
    at_ += sizeof(T);
  }
  void put_bytes(ByteSpan bytes) {
    if (!bytes.empty()) std::memcpy(at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  std::size_t written() const { return static_cast<std::size_t>(at_ - begin_); }

 private:
  std::byte* begin_;
  std::byte* at_;
};

void put(Writer& writer, const Introduction& introduction) {
  writer.put<std::uint32_t>(introduction.path);
  writer.put<std::uint16_t>(introduction.worker);
  writer.put<std::uint16_t>(introduction.port);
  writer.put_bytes(introduction.random);
  writer.put_bytes(introduction.incarnation);
  writer.put<std::uint8_t>(static_cast<std::uint8_t>(introduction.name.size()));
  writer.put_bytes(introduction.name);
}

// False if the name is longer than allowed.
bool take(Reader& reader, Introduction& introduction) {
  introduction.path = reader.take<std::uint32_t>();
  introduction.worker = reader.take<std::uint16_t>();
  introduction.port = reader.take<std::uint16_t>();
  introduction.random = reader.take_array<32>();
  introduction.incarnation = reader.take_array<16>();
  const auto name_bytes = reader.take<std::uint8_t>();
  if (name_bytes > kMaxNameBytes) return false;
  introduction.name = reader.take_bytes(name_bytes);
  return reader.ok();
}

std::byte type_byte(PacketType type) { return static_cast<std::byte>(type); }

}  // namespace

std::size_t encode(const Hello& hello, std::byte* to) {
  std::memset(to, 0, kHelloBytes);
  Writer writer(to);
  writer.put(type_byte(PacketType::hello));
  writer.put<std::uint8_t>(kVersion);
  put(writer, hello.initiator);
  writer.put_bytes(hello.credential);
  return kHelloBytes;
}

std::optional<Hello> decode_hello(ByteSpan datagram) {
  if (datagram.size() < kHelloBytes) return std::nullopt;
  Reader reader(datagram);
  if (reader.take<std::byte>() != type_byte(PacketType::hello)) return std::nullopt;
  if (reader.take<std::uint8_t>() != kVersion) return std::nullopt;
  Hello hello;
  if (!take(reader, hello.initiator)) return std::nullopt;
  hello.credential = reader.take_array<kCredentialBytes>();
  return hello;
}

std::size_t encode(const HelloReply& reply, std::byte* to) {
  Writer writer(to);
  writer.put(type_byte(PacketType::hello_reply));
  writer.put<std::uint8_t>(kVersion);
  writer.put<std::uint16_t>(0);
  writer.put<std::uint32_t>(reply.to_path);
  writer.put<std::uint64_t>(reply.sequence);
  writer.put_bytes(reply.echo);
  put(writer, reply.responder);
  writer.put<std::uint32_t>(reply.calls);
  writer.put<std::uint32_t>(reply.inline_bytes);
  writer.put<std::uint32_t>(reply.allowance);
  writer.put<std::uint32_t>(reply.nested_allowance);
  return writer.written();
}

std::optional<DecodedHelloReply> decode_hello_reply(ByteSpan datagram) {
  Reader reader(datagram);
  if (reader.take<std::byte>() != type_byte(PacketType::hello_reply)) return std::nullopt;
  if (reader.take<std::uint8_t>() != kVersion) return std::nullopt;
  reader.take<std::uint16_t>();
  DecodedHelloReply out{};
  out.reply.to_path = reader.take<std::uint32_t>();
  out.reply.sequence = reader.take<std::uint64_t>();
  out.reply.echo = reader.take_array<16>();
  if (!take(reader, out.reply.responder)) return std::nullopt;
  out.reply.calls = reader.take<std::uint32_t>();
  out.reply.inline_bytes = reader.take<std::uint32_t>();
  out.reply.allowance = reader.take<std::uint32_t>();
  out.reply.nested_allowance = reader.take<std::uint32_t>();
  out.authenticated = datagram.first(reader.at());
  const ByteSpan tag = reader.take_bytes(kTagBytes);
  if (!reader.ok() || reader.at() != datagram.size()) return std::nullopt;
  out.tag = tag.data();
  return out;
}

std::size_t encode(const FirstPrefix& prefix, std::byte* to) {
  Writer writer(to);
  writer.put<std::uint64_t>(prefix.sequence);
  writer.put<std::uint32_t>(prefix.allowance);
  put(writer, prefix.initiator);
  writer.put_bytes(prefix.credential);
  writer.put_bytes(prefix.nonce);
  return writer.written();
}

std::optional<DecodedFirst> decode_first(ByteSpan datagram) {
  if (datagram.size() < kHeaderBytes) return std::nullopt;
  Reader reader(datagram.subspan(kHeaderBytes));
  DecodedFirst out{};
  out.prefix.sequence = reader.take<std::uint64_t>();
  out.prefix.allowance = reader.take<std::uint32_t>();
  if (!take(reader, out.prefix.initiator)) return std::nullopt;
  out.prefix.credential = reader.take_array<kCredentialBytes>();
  out.prefix.nonce = reader.take_array<kNonceBytes>();
  out.authenticated = datagram.subspan(kHeaderBytes, reader.at());
  const ByteSpan tag = reader.take_bytes(kTagBytes);
  if (!reader.ok()) return std::nullopt;
  out.tag = tag.data();
  out.bytes = kHeaderBytes + reader.at();
  if (datagram.size() < out.bytes + kTagBytes + 1) return std::nullopt;
  return out;
}

std::size_t encode(const UnknownSecret& unknown, std::byte* to) {
  Writer writer(to);
  writer.put(kUnknownSecretByte);
  writer.put<std::uint8_t>(kVersion);
  writer.put<std::uint32_t>(unknown.to_path);
  writer.put<std::uint16_t>(unknown.worker);
  writer.put<std::uint16_t>(unknown.port);
  writer.put_bytes(unknown.echo);
  writer.put_bytes(unknown.credential);
  return writer.written();
}

std::optional<UnknownSecret> decode_unknown_secret(ByteSpan datagram) {
  if (datagram.size() != kUnknownSecretBytes) return std::nullopt;
  Reader reader(datagram);
  if (reader.take<std::byte>() != kUnknownSecretByte) return std::nullopt;
  if (reader.take<std::uint8_t>() != kVersion) return std::nullopt;
  UnknownSecret out;
  out.to_path = reader.take<std::uint32_t>();
  out.worker = reader.take<std::uint16_t>();
  out.port = reader.take<std::uint16_t>();
  out.echo = reader.take_array<16>();
  out.credential = reader.take_array<kCredentialBytes>();
  return out;
}

std::size_t encode(const UnknownPath& unknown, std::byte* to) {
  to[0] = kUnknownPathByte;
  store24(to + 1, unknown.number_low);
  store<std::uint32_t>(to + 4, unknown.path);
  return kUnknownPathBytes - kTagBytes;
}

std::optional<UnknownPath> decode_unknown_path(ByteSpan datagram) {
  if (datagram.size() != kUnknownPathBytes || datagram[0] != kUnknownPathByte) return std::nullopt;
  return UnknownPath{.number_low = load24(datagram.data() + 1), .path = load<std::uint32_t>(datagram.data() + 4)};
}

}  // namespace weir::wire
