// What any thread may ask a SecretMap at any time. See secret_map.cc for the writer's part.
#include <cstddef>
#include <span>
#include <utility>

#include "peer/secret_map.h"
#include "peer/secret_slot.h"

namespace weir::peer {

// Sets `use` to the found slot's word. What `take` read of the slot last was there as a whole. Null: not there. A
// restart means that the writer has changed this very chain or slot meanwhile, so the loop ends.
template <SecretMap::Chain chain, class Key, class Take>
SecretMap::Slot* SecretMap::locate(const Key& key, std::uint64_t& use, Take&& take) const {
  const Link& first = head(key);
  for (;;) {
    const std::uint64_t moves = moves_.load(std::memory_order_acquire);
    bool restart = false;
    for (Index index = first.load(std::memory_order_acquire); index != 0 && !restart;) {
      Slot& entry = slot(index);
      use = entry.use.load(std::memory_order_acquire);
      if ((use & kLive) == 0) {
        restart = true;  // it left the chain before it died
      } else if (!entry.matches(key)) {
        index = entry.next[chain].load(std::memory_order_acquire);
      } else {
        take(std::as_const(entry));
        // Relaxed: the acquire loads above keep it behind them.
        const std::uint64_t after = entry.use.load(std::memory_order_relaxed);
        const bool belongs = chain == by_id || (use & kAddressed) != 0;
        if (belongs && ((use ^ after) & kLifeMask) == 0) return &entry;
        restart = true;  // it left this chain before we looked
      }
    }
    if (!restart && moves_.load(std::memory_order_relaxed) == moves) return nullptr;
  }
}

// Relaxed, and may fail: only a hint to the writer's hand.
void SecretMap::note_look(Slot& entry, std::uint64_t use) {
  if ((use & kReferenced) == 0) entry.use.compare_exchange_weak(use, use | kReferenced, std::memory_order_relaxed);
}

template <SecretMap::Chain chain, class Key>
bool SecretMap::read(const Key& key, Instant now, Credential& out) const {
  Stored copy;
  std::uint64_t use = 0;
  Slot* entry = locate<chain>(key, use, [&copy](const Slot& slot) { slot.load(copy); });
  const bool is_valid = entry != nullptr && now.ns < copy.expires_ns;
  if (is_valid) {
    copy.unpack(out);
    note_look(*entry, use);
  }
  if (entry != nullptr) copy.wipe();
  return is_valid;
}

bool SecretMap::find(const CredentialId& id, Instant now, Credential& out) const { return read<by_id>(id, now, out); }

bool SecretMap::find_caller(const CredentialId& id, Instant now, KnownCredential& out) const {
  // Straight to where it is wanted, so that there is no copy to wipe.
  struct Terms {
    std::uint32_t mtu;
    std::uint8_t others[2];
    std::uint8_t may_call;
    std::uint8_t unused;
    std::int64_t expires_ns;
    std::uint64_t member;
  } terms;
  static_assert(offsetof(Terms, may_call) == offsetof(Stored, may_call) - offsetof(Stored, mtu));
  static_assert(offsetof(Terms, expires_ns) == offsetof(Stored, expires_ns) - offsetof(Stored, mtu));
  static_assert(offsetof(Terms, member) == offsetof(Stored, member) - offsetof(Stored, mtu));
  std::uint64_t use = 0;
  Slot* entry = locate<by_id>(id, use, [&](const Slot& slot) {
    slot.load<offsetof(Stored, mtu)>(std::as_writable_bytes(std::span{&terms, 1}));
    slot.load<offsetof(Stored, secret)>(out.secret.writable());
    slot.load<offsetof(Stored, hello_key)>(out.hello_key);
    slot.load<offsetof(Stored, answer_key)>(out.answer_key);
  });
  if (entry == nullptr || terms.expires_ns <= now.ns) return false;
  out.mtu = terms.mtu;
  out.expires = Instant{terms.expires_ns};
  out.member = terms.member;
  note_look(*entry, use);
  return terms.may_call != 0;
}

bool SecretMap::find_by_address(const Address& address, Instant now, Credential& out) const {
  return read<by_address>(address, now, out);
}

// Applies to this life of the credential only.
bool SecretMap::mark_used(const CredentialId& id, Side side) {
  const std::uint64_t flags = side == Side::us ? kUsedByUs : side == Side::peer ? kUsedByPeer : kUsedByBoth;
  std::uint64_t use = 0;
  Slot* entry = locate<by_id>(id, use, [](const Slot&) {});
  if (entry == nullptr) return false;
  const std::uint64_t life = use & kLifeMask;
  while ((use & kLifeMask) == life) {
    if ((use | flags) == use) return false;
    // Acquire and release: what a thread did before it said so happens before the writer wipes.
    if (entry->use.compare_exchange_weak(use, use | flags, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

}  // namespace weir::peer
