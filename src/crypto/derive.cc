#include "crypto/derive.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "crypto/hkdf.h"

namespace weir::crypto {
namespace {

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span{text}); }

// The info string of one derivation. The longest has a label, two names of 64 bytes and some numbers.
class Info {
 public:
  explicit Info(std::string_view label) { counted(bytes_of(label)); }

  Info& counted(ByteSpan bytes) {
    number(static_cast<std::uint64_t>(bytes.size()));
    return fixed(bytes);
  }
  Info& fixed(ByteSpan bytes) {
    WEIR_CHECK(bytes.size() <= bytes_.size() - used_, "no name in an info string is longer than 64 bytes");
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += bytes.size();
    return *this;
  }
  template <class T>
  Info& number(T value) {
    std::array<std::byte, sizeof(T)> encoded;
    store<T>(encoded.data(), value);
    return fixed(encoded);
  }

  KeyBytes expand_key(const Secret& from) const {
    KeyBytes key;
    hkdf_expand(from, written(), key);
    return key;
  }
  Secret expand_secret(const Secret& from) const {
    Secret secret;
    hkdf_expand(from, written(), secret.writable());
    return secret;
  }

 private:
  ByteSpan written() const { return ByteSpan{bytes_}.first(used_); }

  std::array<std::byte, 256> bytes_;
  std::size_t used_ = 0;
};

std::uint8_t direction(bool from_initiator) { return from_initiator ? 1 : 0; }

}  // namespace

Result<SharedSecret> SharedSecret::from_text(std::string_view text) {
  if (text.size() < kMinBytes) {
    return std::unexpected(
        Error{Code::invalid_argument, "the shared secret is shorter than 16 bytes; use a long random string"});
  }
  return SharedSecret{hkdf_extract(bytes_of("weir 1 shared secret"), bytes_of(text))};
}

Secret derive_path_secret(const SharedSecret& shared, const PathNames& names) {
  std::array<std::byte, 64> salt;
  std::copy(names.initiator_random.begin(), names.initiator_random.end(), salt.begin());
  std::copy(names.responder_random.begin(), names.responder_random.end(), salt.begin() + 32);
  const Secret fresh = hkdf_extract(salt, shared.secret().bytes());
  return Info{"weir 1 path"}
      .counted(names.initiator_id)
      .counted(names.responder_id)
      .fixed(names.initiator_incarnation)
      .fixed(names.responder_incarnation)
      .number(names.initiator_path)
      .number(names.responder_path)
      .expand_secret(fresh);
}

KeyBytes derive_control_key(const Secret& path, const KeyNames& names) {
  return Info{"weir 1 control"}
      .number(direction(names.from_initiator))
      .number(names.sender_worker)
      .number(names.sender_port)
      .number(names.receiver_worker)
      .number(names.receiver_port)
      .number(names.key_id)
      .expand_key(path);
}

KeyBytes derive_retire_key(const Secret& path, bool from_initiator) {
  return Info{"weir 1 retire"}.number(direction(from_initiator)).expand_key(path);
}

KeyBytes derive_hello_key(const SharedSecret& shared) { return Info{"weir 1 hello"}.expand_key(shared.secret()); }

KeyBytes derive_answer_key(const SharedSecret& shared) { return Info{"weir 1 answer"}.expand_key(shared.secret()); }

KeyBytes derive_signer(const SharedSecret& shared) { return Info{"weir 1 signer"}.expand_key(shared.secret()); }

std::uint64_t derive_order(const Secret& secret) {
  KeyBytes bytes = Info{"weir 1 order"}.expand_key(secret);
  const auto order = load<std::uint64_t>(bytes.data());
  wipe(bytes);  // one half is told, the other need not stay
  return order;
}

}  // namespace weir::crypto
