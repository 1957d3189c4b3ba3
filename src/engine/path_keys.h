// PathKeys: the control keys of one path, both directions (docs/protocol.md, rules K-*).
//
// The sender's key id only grows; a new id derives a new key from the path secret. The receiver knows the previous,
// the current and the next key, and moves on when a packet under the next one has authenticated. Key bytes of the next
// id are derived ahead of time, so that a stranger's packet costs a tag check and no derivation. Schedules (1 KiB each)
// are built when needed and dropped when the path is idle.
#pragma once

#include <cstdint>
#include <memory>

#include "crypto/aead.h"
#include "crypto/derive.h"
#include "crypto/secret.h"

namespace weir::engine {

class PathKeys {
 public:
  enum class Which : std::uint8_t { unknown, previous, current, next };

  PathKeys() = default;
  PathKeys(const PathKeys&) = delete;
  PathKeys& operator=(const PathKeys&) = delete;
  ~PathKeys();

  // `sends` and `receives` name the two directions; their key ids are ignored.
  void install(crypto::Aead& aead, const crypto::Secret& path, crypto::KeyNames sends, crypto::KeyNames receives);
  bool installed() const { return aead_ != nullptr; }

  std::uint32_t send_id() const { return send_id_; }
  crypto::AeadKey& send_key();
  void rotate();

  Which recognise(std::uint8_t key_low) const;
  crypto::AeadKey& receive_key(Which which);
  // A packet under this key has authenticated.
  void on_opened(Which which);

  void drop_schedules();
  bool has_schedules() const { return send_ != nullptr || receive_[1].schedule != nullptr; }

 private:
  struct ReceiveKey {
    crypto::KeyBytes bytes{};
    std::unique_ptr<crypto::AeadKey> schedule;
  };
  void derive(bool sending, std::uint32_t id, crypto::KeyBytes& out) const;

  crypto::Aead* aead_ = nullptr;
  crypto::Secret path_;
  crypto::KeyNames sends_;
  crypto::KeyNames receives_;
  std::uint32_t send_id_ = 0;
  std::uint32_t receive_id_ = 0;
  crypto::KeyBytes send_bytes_{};
  std::unique_ptr<crypto::AeadKey> send_;
  ReceiveKey receive_[3];  // previous, current, next
};

}  // namespace weir::engine
