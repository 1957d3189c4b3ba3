#include "engine/path_keys.h"

#include <utility>

#include "wire/packet.h"

namespace weir::engine {

namespace {
constexpr std::uint32_t kKeyMask = (1u << wire::kKeyIdBits) - 1;
}

PathKeys::~PathKeys() {
  crypto::wipe(send_bytes_);
  for (ReceiveKey& key : receive_) crypto::wipe(key.bytes);
}

void PathKeys::derive(bool sending, std::uint32_t id, crypto::KeyBytes& out) const {
  crypto::KeyNames names = sending ? sends_ : receives_;
  names.key_id = id;
  out = crypto::derive_control_key(path_, names);
}

void PathKeys::install(crypto::Aead& aead, const crypto::Secret& path, crypto::KeyNames sends,
                       crypto::KeyNames receives) {
  aead_ = &aead;
  path_ = path;
  sends_ = sends;
  receives_ = receives;
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

PathKeys::Which PathKeys::recognise(std::uint8_t key_low) const {
  if (key_low == (receive_id_ & kKeyMask)) [[likely]]
    return Which::current;
  if (key_low == ((receive_id_ + 1) & kKeyMask)) return Which::next;
  if (receive_id_ != 0 && key_low == ((receive_id_ - 1) & kKeyMask)) return Which::previous;
  return Which::unknown;
}

crypto::AeadKey& PathKeys::receive_key(Which which) {
  ReceiveKey& key = receive_[static_cast<int>(which) - 1];
  if (key.schedule == nullptr) [[unlikely]]
    key.schedule = aead_->make_key(key.bytes);
  return *key.schedule;
}

void PathKeys::on_opened(Which which) {
  if (which != Which::next) [[likely]]
    return;
  receive_[0] = std::move(receive_[1]);
  receive_[1] = std::move(receive_[2]);
  ++receive_id_;
  derive(false, receive_id_ + 1, receive_[2].bytes);
}

void PathKeys::drop_schedules() {
  send_.reset();
  for (ReceiveKey& key : receive_) key.schedule.reset();
}

}  // namespace weir::engine
