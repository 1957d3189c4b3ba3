// What an engine is told when it is made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/time.h"
#include "buffer/memory.h"
#include "crypto/derive.h"
#include "engine/credential.h"
#include "engine/siblings.h"
#include "schedule/nic_shaper.h"
#include "token/ahead.h"
#include "weir/config.h"

namespace weir::transfer {
struct OutgoingCall;
}

namespace weir::engine {

inline constexpr std::size_t kMaxNameBytes = 64;
inline constexpr std::uint8_t kMaxDepth =
    4;  // nested calls: levels 1 to 4 have a reserve each, deeper ones are refused

struct EngineConfig {
  // One of these two: there is no secret of all in identity mode.
  std::optional<crypto::SharedSecret> secret;  // shared by all
  CredentialBook* credentials = nullptr;       // identity mode
  crypto::KeyBytes signer{};          // all zeros: derived from the shared secret; in identity mode drawn at random
  crypto::Incarnation incarnation{};  // all zeros: drawn
  crypto::KeyBytes cookie{};          // of hello replies; all zeros: drawn. One for all engines at one port
  std::string name;                   // at most kMaxNameBytes
  std::uint16_t worker = 0;           // which of the pool's workers this is
  std::uint16_t port = 0;             // of the link that carries its packets
  std::uint32_t workers_at_port = 1;  // engines that receive at that port: those of workers 0 to this less one
  Siblings* siblings = nullptr;       // the way to the others, if there are any
  bool accepts = false;               // answers hellos
  bool openssl_aead = false;
  std::size_t datagram_bytes = 65'507;         // largest to try for
  std::size_t receive_buffer_bytes = 0;        // what the kernel really gave; 0: unknown, no bound from it
  std::shared_ptr<schedule::NicShaper> nic{};  // that carries its packets, shared with others; null: as fast as it goes
  buffer::Memory* memory = nullptr;            // for large messages that arrive; null: none does
  bool opens_arrivals = false;                 // as they come, because no other thread could: see place_slice()
  std::uint64_t ahead_bytes = token::Ahead::kDefaultBytes;  // for which a sender is given memory before they come
  int numa_node = -1;  // where that should be: near whoever writes into it; -1: wherever
  // The peer has all of a request whose call asked to be told (OutgoingCall::tells_sent). Inside Engine::deliver(), at
  // most once and before the call completes.
  void (*on_sent)(transfer::OutgoingCall& call) = nullptr;
  // Whether the application waits for this call, whose reply waits for memory (rule G-3). Null: nobody can tell, and
  // there is no memory for awaited replies. Who begins to wait calls Engine::look_for_awaited().
  bool (*is_awaited)(const transfer::OutgoingCall& call) = nullptr;
  std::function<void()> wake;                // from any thread: memory of large messages came back
  std::function<bool()> payloads_are_short;  // little is left of Limits::buffer_bytes; null: never
  Limits limits;
  Timeouts timeouts;
  Duration max_ack_delay = std::chrono::milliseconds(1);
#ifdef WEIR_CHECK_NONCES
  std::uint64_t rotate_packets = 4'096;  // builds that look for mistakes rotate often
#else
  std::uint64_t rotate_packets = 1u << 22;
#endif
  std::uint64_t rotate_bytes = 1ull << 36;

  ~EngineConfig() { crypto::wipe(signer); }
};

}  // namespace weir::engine
