// Decodes arbitrary datagrams as each of the four kinds, and encodes what decoded once more.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "wire/packet.h"

namespace {

using namespace weir;
using namespace weir::wire;

void check_inside(ByteSpan part, ByteSpan whole) {
  WEIR_CHECK(part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size()),
             "a decoded field points outside its datagram");
}

void check_introduction(const Introduction& introduction, ByteSpan datagram) {
  WEIR_CHECK(introduction.name.size() <= kMaxNameBytes, "a name longer than allowed");
  check_inside(introduction.name, datagram);
}

// A hello's padding is not looked at, and the bits beside its type neither: the rest must come back.
void hello(ByteSpan datagram) {
  const auto decoded = decode_hello(datagram);
  if (!decoded) return;
  check_introduction(decoded->initiator, datagram);
  std::byte again[kHelloBytes];
  WEIR_CHECK(encode(*decoded, again) == kHelloBytes && kHelloBytes <= datagram.size(), "a hello of another size");
  const std::size_t meaningful = 2 + 57 + decoded->initiator.name.size();
  WEIR_CHECK(std::equal(again + 1, again + meaningful, datagram.begin() + 1), "a hello encodes to other bytes");
}

void hello_reply(ByteSpan datagram) {
  const auto decoded = decode_hello_reply(datagram);
  if (!decoded) return;
  check_introduction(decoded->reply.responder, datagram);
  WEIR_CHECK(decoded->authenticated.size() + kTagBytes == datagram.size(), "something is not authenticated");
  WEIR_CHECK(decoded->tag == datagram.data() + decoded->authenticated.size(), "the tag is not at the end");
  WEIR_CHECK(datagram.size() <= kHelloBytes, "a reply larger than a hello");
  std::byte again[kHelloBytes];
  const std::size_t size = encode(decoded->reply, again);
  WEIR_CHECK(size == decoded->authenticated.size(), "a reply of another size");
  // Bytes 2 and 3 are reserved: ignored when read, zero when written.
  WEIR_CHECK(again[1] == datagram[1] && std::equal(again + 4, again + size, datagram.begin() + 4),
             "a reply encodes to other bytes");
}

void first(ByteSpan datagram) {
  const auto decoded = decode_first(datagram);
  if (!decoded) return;
  check_introduction(decoded->prefix.initiator, datagram);
  WEIR_CHECK(decoded->bytes + kTagBytes < datagram.size(), "no room for a ciphertext");
  check_inside(decoded->authenticated, datagram);
  check_inside({decoded->tag, kTagBytes}, datagram);
  std::byte again[kMaxPrefixBytes];
  const std::size_t size = encode(decoded->prefix, again);
  WEIR_CHECK(size == decoded->authenticated.size() && size + kTagBytes <= kMaxPrefixBytes, "a prefix of another size");
  WEIR_CHECK(std::equal(again, again + size, decoded->authenticated.begin()), "a prefix encodes to other bytes");
}

void unknown(ByteSpan datagram) {
  std::byte again[kUnknownSecretBytes];
  if (const auto secret = decode_unknown_secret(datagram)) {
    const std::size_t size = encode(*secret, again);
    WEIR_CHECK(std::equal(again, again + size, datagram.begin()), "an unknown_secret encodes to other bytes");
  }
  if (const auto path = decode_unknown_path(datagram)) {
    const std::size_t size = encode(*path, again);
    WEIR_CHECK(std::equal(again, again + size, datagram.begin()), "an unknown_path encodes to other bytes");
  }
}

void header(ByteSpan datagram) {
  if (datagram.size() < kMinPacketBytes) return;
  std::byte again[kHeaderBytes];
  encode(decode_header(datagram.data()), again);
  WEIR_CHECK(std::equal(again, again + kHeaderBytes, datagram.begin()), "a header encodes to other bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan datagram{reinterpret_cast<const std::byte*>(data), size};
  header(datagram);
  hello(datagram);
  hello_reply(datagram);
  first(datagram);
  unknown(datagram);
  return 0;
}
