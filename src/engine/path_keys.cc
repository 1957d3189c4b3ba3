#include "engine/path_keys.h"

#include <utility>

#include "wire/packet.h"

namespace weir::engine {

namespace {

constexpr std::uint32_t kKeyMask = (1u << wire::kKeyIdBits) - 1;

// What the MAC of a retirement covers: the frame up to it.
struct Covered {
  explicit Covered(const wire::RetireFrame& frame) { wire::encode(frame, bytes); }
  ByteSpan span() const { return {bytes, wire::kRetireBytes}; }
  std::byte bytes[wire::kRetireFrameBytes];
};

// Rare enough that the key is made each time.
void become_retire_key(crypto::AeadKey& scratch, const crypto::Secret& path, bool from_initiator) {
  crypto::KeyBytes key = crypto::derive_retire_key(path, from_initiator);
  scratch.rekey(key);
  crypto::wipe(key);
}

}  // namespace

PathKeys::~PathKeys() {
  crypto::wipe(send_bytes_);
  for (ReceiveKey& key : receive_) crypto::wipe(key.bytes);
}

void PathKeys::derive(bool sending, std::uint32_t id, crypto::KeyBytes& out) const {
  crypto::KeyNames names = sending ? sends_ : sends_.reversed();
  names.key_id = id;
  out = crypto::derive_control_key(path_, names);
}

void PathKeys::install(crypto::Aead& aead, const crypto::Secret& path, crypto::KeyNames sends) {
  aead_ = &aead;
  path_ = path;
  sends_ = sends;
  derive(true, 0, send_bytes_);
  derive(false, 0, receive_[1].bytes);
  derive(false, 1, receive_[2].bytes);
}

crypto::AeadKey& PathKeys::send_key() {
  if (send_ == nullptr) [[unlikely]]
    send_ = aead_->make_key(send_bytes_);
  return *send_;
}

void PathKeys::rotate() {
  derive(true, ++send_id_, send_bytes_);
  send_.reset();
}

const wire::RetireFrame& PathKeys::retirement(crypto::AeadKey& scratch) {
  if (retirement_.key_id != send_id_) {
    retirement_.key_id = send_id_;
    become_retire_key(scratch, path_, sends_.from_initiator);
    scratch.mac(crypto::make_nonce(0, send_id_), Covered(retirement_).span(), retirement_.mac.data());
  }
  return retirement_;
}

PathKeys::Which PathKeys::recognise(std::uint8_t key_low) const {
  if (key_low == (receive_id_ & kKeyMask)) [[likely]]
    return Which::current;
  if (key_low == ((receive_id_ + 1) & kKeyMask)) return Which::next;
  if (receive_id_ != receive_floor_ && key_low == ((receive_id_ - 1) & kKeyMask)) return Which::previous;
  return Which::unknown;
}

crypto::AeadKey& PathKeys::receive_key(Which which) {
  ReceiveKey& key = receive_[static_cast<int>(which) - 1];
  if (key.schedule == nullptr) [[unlikely]]
    key.schedule = aead_->make_key(key.bytes);
  return *key.schedule;
}

crypto::AeadKey& PathKeys::receive_key(Which which, crypto::AeadKey& scratch) {
  ReceiveKey& key = receive_[static_cast<int>(which) - 1];
  if (key.schedule != nullptr) [[likely]]
    return *key.schedule;
  scratch.rekey(key.bytes);
  return scratch;
}

void PathKeys::on_opened(Which which) {
  receive_key(which);
  if (which != Which::next) [[likely]]
    return;
  receive_[0] = std::move(receive_[1]);
  receive_[1] = std::move(receive_[2]);
  receive_floor_ = receive_id_++;
  derive(false, receive_id_ + 1, receive_[2].bytes);
}

bool PathKeys::on_retired(const wire::RetireFrame& frame, crypto::AeadKey& scratch) {
  // It travels under the key that it names, or a later one: whoever reads it has that key.
  if (frame.key_id > receive_id_) return false;
  if (frame.key_id <= receive_floor_) return true;
  become_retire_key(scratch, path_, !sends_.from_initiator);
  if (!scratch.verify_mac(crypto::make_nonce(0, frame.key_id), Covered(frame).span(), frame.mac.data())) return false;
  crypto::wipe(receive_[0].bytes);
  receive_[0].schedule.reset();
  receive_floor_ = receive_id_;
  return true;
}

void PathKeys::drop_schedules() {
  send_.reset();
  for (ReceiveKey& key : receive_) key.schedule.reset();
}

}  // namespace weir::engine
