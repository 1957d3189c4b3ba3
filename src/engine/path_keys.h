// PathKeys: the control keys of one path, both directions (docs/protocol.md, rules K-*).
//
// The sender's key id only grows; a new id derives a new key from the path secret. The receiver knows the previous,
// the current and the next key, and moves on when a packet under the next one has authenticated. It forgets the
// previous one when it moves on again, or sooner, when the sender says that it retired it. Key bytes of the next id are
// derived ahead of time, so that a stranger's packet costs a tag check and no derivation. Schedules (1 KiB each) are
// built for packets that authenticated and dropped when the path is idle. One in each path; called by its engine's
// thread alone.
#pragma once

#include <cstdint>
#include <memory>

#include "crypto/aead.h"
#include "crypto/derive.h"
#include "crypto/secret.h"
#include "wire/frame.h"

namespace weir::engine {

class PathKeys {
 public:
  enum class Which : std::uint8_t { unknown, previous, current, next };

  PathKeys() = default;
  PathKeys(const PathKeys&) = delete;
  PathKeys& operator=(const PathKeys&) = delete;
  ~PathKeys();

  // `sends` names the direction from here; its key id is ignored.
  void install(crypto::Aead& aead, const crypto::Secret& path, crypto::KeyNames sends);
  bool installed() const { return aead_ != nullptr; }
  // The other side, as it introduced itself.
  std::uint16_t remote_worker() const { return sends_.receiver_worker; }
  std::uint16_t remote_port() const { return sends_.receiver_port; }

  std::uint32_t send_id() const { return send_id_; }
  crypto::AeadKey& send_key();
  void rotate();

  // Says that no key below send_id() will be used again (rule K-10). `scratch` loses the key it had.
  const wire::RetireFrame& retirement(crypto::AeadKey& scratch);

  Which recognise(std::uint8_t key_low) const;
  crypto::AeadKey& receive_key(Which which);
  // The same, but where there is no schedule `scratch` becomes the key: nothing is allocated for a packet that may be a
  // stranger's.
  crypto::AeadKey& receive_key(Which which, crypto::AeadKey& scratch);
  // A packet under this key has authenticated.
  void on_opened(Which which);
  // The sender has retired its keys below an id: ours go. False if it cannot have said so. A key id is worth one
  // derivation and one check; repeated and late frames cost none.
  [[nodiscard]] bool on_retired(const wire::RetireFrame& frame, crypto::AeadKey& scratch);

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
  std::uint32_t send_id_ = 0;
  std::uint32_t receive_id_ = 0;
  std::uint32_t receive_floor_ = 0;  // the lowest id that still opens; only rises
  crypto::KeyBytes send_bytes_{};
  wire::RetireFrame retirement_;  // made once for each id: a nonce must not make two MACs
  std::unique_ptr<crypto::AeadKey> send_;
  ReceiveKey receive_[3];  // previous, current, next
};

}  // namespace weir::engine
