// The writer's part of a SecretMap, and what both parts share. See secret_map_reader.cc for what any thread may ask.
#include "peer/secret_map.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "peer/secret_slot.h"

namespace weir::peer {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

SecretMap::SecretMap(const Options& options)
    : options_(options),
      mask_(std::bit_ceil(options.capacity) - 1),
      ids_(std::make_unique<Link[]>(mask_ + 1)),
      addresses_(std::make_unique<Link[]>(mask_ + 1)),
      chunks_(std::make_unique<sync::Atomic<Slot*>[]>((options.capacity + kChunkSlots - 1) / kChunkSlots)) {
  static_assert(sizeof(Stored) == kStoredBytes && std::is_trivially_copyable_v<Stored>);
  static_assert(sizeof(Address) == 20 && offsetof(Stored, handshake_address) == 8 * kAddressWord);
  // Two heads of each index where the capacity is just above a power of two, the heap, and the chunk's pointer.
  static_assert(sizeof(Slot) + 4 * sizeof(Link) + sizeof(Index) + 1 <= 512, "an entry with all indexes");
  WEIR_CHECK(options.capacity > 0 && options.capacity <= kMaxCapacity, "a capacity from 1 to kMaxCapacity");
  WEIR_CHECK(options.grace > Duration::zero() && options.lifetime > Duration::zero(), "durations above zero");
  deadlines_.reserve(options.capacity);
}

SecretMap::~SecretMap() {
  for (std::uint32_t first = 0; first < touched_; first += kChunkSlots) {
    Slot* chunk = chunks_[first / kChunkSlots].load(std::memory_order_relaxed);
    crypto::wipe({reinterpret_cast<std::byte*>(chunk), kChunkSlots * sizeof(Slot)});
    delete[] chunk;
  }
}

SecretMap::Slot& SecretMap::slot(Index index) const {
  return chunks_[(index - 1) / kChunkSlots].load(std::memory_order_acquire)[(index - 1) % kChunkSlots];
}

SecretMap::Link& SecretMap::head(const CredentialId& id) const {
  const auto low = load<std::uint64_t>(id.data());
  const auto high = load<std::uint64_t>(id.data() + 8);
  return ids_[mix(low ^ options_.hash_seed, high ^ 0xa0761d6478bd642f) & mask_];
}

SecretMap::Link& SecretMap::head(const Address& address) const {
  return addresses_[mix(AddressHash{}(address) ^ options_.hash_seed, 0xe7037ed1a0b428db) & mask_];
}

SecretMap::Index SecretMap::index_by_id(const CredentialId& id) const {
  Index index = head(id).load(std::memory_order_relaxed);
  while (index != 0 && !slot(index).matches(id)) index = slot(index).next[by_id].load(std::memory_order_relaxed);
  return index;
}

SecretMap::Index SecretMap::index_by_address(const Address& address) const {
  Index index = head(address).load(std::memory_order_relaxed);
  while (index != 0 && !slot(index).matches(address)) {
    index = slot(index).next[by_address].load(std::memory_order_relaxed);
  }
  return index;
}

void SecretMap::link(Chain chain, Link& first, Index index) {
  slot(index).next[chain].store(first.load(std::memory_order_relaxed), std::memory_order_release);
  first.store(index, std::memory_order_release);
}

// The slot keeps its own link, so that a reader that stands on it goes on along the chain.
void SecretMap::unlink(Chain chain, Link& first, Index index) {
  Link* link = &first;
  while (link->load(std::memory_order_relaxed) != index) {
    WEIR_CHECK(link->load(std::memory_order_relaxed) != 0, "a credential is missing from its chain");
    link = &slot(link->load(std::memory_order_relaxed)).next[chain];
  }
  // A reader that passed the head before something was linked there and finds this one gone must look again.
  moves_.fetch_add(1, std::memory_order_release);
  link->store(slot(index).next[chain].load(std::memory_order_relaxed), std::memory_order_release);
}

void SecretMap::leave_address(Index index) {
  Slot& entry = slot(index);
  if ((entry.use.load(std::memory_order_relaxed) & kAddressed) == 0) return;
  Stored stored;
  entry.load(stored);
  unlink(by_address, head(stored.handshake_address), index);
  entry.use.fetch_and(~kAddressed, std::memory_order_release);
  stored.wipe();
}

bool SecretMap::install(const Credential& credential, Instant now) {
  if (index_by_id(credential.id) != 0) return false;
  const Index index = take_slot();
  Slot& entry = slot(index);
  Stored stored;
  stored.pack(credential);
  entry.store(stored);
  stored.wipe();
  entry.installed = now;
  entry.end = earliest(now + options_.lifetime, Instant{credential.expires_ns});
  entry.state = State::openable;
  // Release: whoever sees it alive sees its words. It counts as looked up, so that a full map keeps it for a round.
  entry.use.store((static_cast<std::uint64_t>(entry.generation()) << 32) | kLive | kReferenced,
                  std::memory_order_release);
  link(by_id, head(credential.id), index);
  ++size_;
  ++stats_.installed;
  schedule(index, end_of(entry));
  return true;
}

SecretMap::Confirmation SecretMap::confirm(const CredentialId& id, Instant now) {
  const Index index = index_by_id(id);
  if (index == 0) return Confirmation::unknown;
  Slot& entry = slot(index);
  if (entry.state == State::usable) return Confirmation::current;
  if (entry.state != State::openable) return Confirmation::lost;
  Stored stored;
  entry.load(stored);
  const Address address = stored.handshake_address;
  stored.wipe();
  if (address == Address{}) {  // nobody can be asked for under this name, but it serves by its id
    entry.state = State::usable;
    return Confirmation::current;
  }
  const Index rival = index_by_address(address);
  if (rival != 0 && simultaneous(slot(rival), entry) && precedes(slot(rival), entry)) {
    supersede(index, rival, now);
    return Confirmation::lost;
  }
  entry.state = State::usable;
  entry.use.fetch_or(kAddressed, std::memory_order_release);
  link(by_address, head(address), index);  // in front of its rival: the address is never without one
  if (rival != 0) {
    leave_address(rival);
    supersede(rival, index, now);
  }
  return Confirmation::current;
}

bool SecretMap::simultaneous(const Slot& one, const Slot& other) const {
  Stored left, right;
  one.load(left);
  other.load(right);
  const Duration apart =
      one.installed < other.installed ? other.installed - one.installed : one.installed - other.installed;
  const bool result = left.initiator != right.initiator && left.remote_incarnation == right.remote_incarnation &&
                      apart <= options_.simultaneous;
  left.wipe();
  right.wipe();
  return result;
}

std::uint64_t SecretMap::order_of(const Stored& stored) const {
  if (!options_.order) return crypto::derive_order(crypto::Secret{stored.secret});
  Credential credential;
  stored.unpack(credential);
  return options_.order(credential);
}

bool SecretMap::precedes(const Slot& one, const Slot& other) const {
  Stored left, right;
  one.load(left);
  other.load(right);
  const std::pair left_order{order_of(left), left.id};
  const std::pair right_order{order_of(right), right.id};
  left.wipe();
  right.wipe();
  return left_order < right_order;
}

void SecretMap::supersede(Index loser, Index winner, Instant now) {
  Slot& entry = slot(loser);
  entry.state = State::superseded;
  entry.other = winner;
  entry.other_generation = slot(winner).generation();
  schedule(loser, earliest(end_of(entry), now + options_.grace));
}

bool SecretMap::retire(const CredentialId& id, Instant at) {
  const Index index = index_by_id(id);
  if (index == 0) return false;
  leave_address(index);
  Slot& entry = slot(index);
  // Once retired, it can only go earlier.
  const Instant limit = entry.state == State::retired ? entry.deadline : end_of(entry);
  entry.state = State::retired;
  schedule(index, earliest(limit, at));
  return true;
}

// Whether its time has come. A superseded one is only looked at once per grace period.
bool SecretMap::is_due(const Slot& entry, Instant now) const {
  return entry.deadline <= now && (entry.state != State::superseded || now >= end_of(entry));
}

void SecretMap::review(Slot& loser, Instant now) {
  const Slot& winner = slot(loser.other);
  const std::uint64_t use = winner.use.load(std::memory_order_acquire);
  const bool there = (use & kLive) != 0 && winner.generation() == loser.other_generation && !is_due(winner, now);
  if (!there || (use & kUsedByBoth) == kUsedByBoth) loser.state = State::retired;
}

std::size_t SecretMap::expire(Instant now) {
  std::size_t removed = 0;
  while (!deadlines_.empty() && slot(deadlines_.front()).deadline <= now) {
    const Index index = deadlines_.front();
    Slot& entry = slot(index);
    if (!is_due(entry, now)) {
      review(entry, now);
      schedule(index, earliest(end_of(entry), now + options_.grace));
      continue;
    }
    remove(index);
    ++removed;
  }
  stats_.expired += removed;
  return removed;
}

Instant SecretMap::next_deadline() const {
  return deadlines_.empty() ? Instant::never() : slot(deadlines_.front()).deadline;
}

std::optional<SecretMap::State> SecretMap::state(const CredentialId& id) const {
  const Index index = index_by_id(id);
  if (index == 0) return std::nullopt;
  return slot(index).state;
}

Instant SecretMap::end_of(const Slot& entry) const { return entry.end; }

SecretMap::Index SecretMap::take_slot() {
  if (free_ == 0 && touched_ < options_.capacity) {
    if (touched_ % kChunkSlots == 0) {
      // Release: whoever follows a link into the chunk finds it made.
      chunks_[touched_ / kChunkSlots].store(new Slot[kChunkSlots](), std::memory_order_release);
    }
    return ++touched_;
  }
  if (free_ == 0) evict();
  const Index index = std::exchange(free_, slot(free_).other);
  // Its links are about to lead elsewhere: whoever still stands on it must look again.
  moves_.fetch_add(1, std::memory_order_release);
  return index;
}

// Second chance: the hand goes round and takes the first that was not looked up since it last came by. Those that
// nothing new is begun with have no second chance.
void SecretMap::evict() {
  // All slots are taken. The third round takes what readers keep looking up faster than the hand moves.
  for (std::uint64_t steps = 0;; ++steps) {
    hand_ = hand_ == options_.capacity ? 1 : hand_ + 1;
    Slot& entry = slot(hand_);
    const bool current = entry.state == State::openable || entry.state == State::usable;
    const bool referenced = (entry.use.load(std::memory_order_relaxed) & kReferenced) != 0;
    if (current && referenced && steps < 2ull * options_.capacity) {
      entry.use.fetch_and(~kReferenced, std::memory_order_relaxed);
      continue;
    }
    remove(hand_);
    ++stats_.evicted;
    return;
  }
}

void SecretMap::remove(Index index) {
  Slot& entry = slot(index);
  Stored stored;
  entry.load(stored);
  leave_address(index);
  unlink(by_id, head(stored.id), index);
  stored.wipe();
  // The life ends before its words go: a reader in the middle of them sees the end when it looks again.
  entry.use.store((static_cast<std::uint64_t>(entry.generation()) << 32) + kGeneration, std::memory_order_release);
  entry.wipe();
  unschedule(index);
  entry.other = std::exchange(free_, index);
  --size_;
}

// ---- deadlines: a binary heap of slots that know their place ----

void SecretMap::place(std::size_t position, Index index) {
  deadlines_[position] = index;
  slot(index).position = static_cast<std::uint32_t>(position);
}

void SecretMap::schedule(Index index, Instant deadline) {
  Slot& entry = slot(index);
  const bool inside = entry.position < deadlines_.size() && deadlines_[entry.position] == index;
  entry.deadline = deadline;
  if (!inside) {
    deadlines_.push_back(index);
    entry.position = static_cast<std::uint32_t>(deadlines_.size() - 1);
  }
  sift_down(sift_up(entry.position));
}

void SecretMap::unschedule(Index index) {
  const std::size_t hole = slot(index).position;
  const Index last = deadlines_.back();
  deadlines_.pop_back();
  if (last == index) return;
  place(hole, last);
  sift_down(sift_up(hole));
}

std::size_t SecretMap::sift_up(std::size_t position) {
  const Index index = deadlines_[position];
  while (position > 0 && slot(index).deadline < slot(deadlines_[(position - 1) / 2]).deadline) {
    place(position, deadlines_[(position - 1) / 2]);
    position = (position - 1) / 2;
  }
  place(position, index);
  return position;
}

void SecretMap::sift_down(std::size_t position) {
  const Index index = deadlines_[position];
  for (;;) {
    std::size_t child = 2 * position + 1;
    if (child >= deadlines_.size()) break;
    if (child + 1 < deadlines_.size() && slot(deadlines_[child + 1]).deadline < slot(deadlines_[child]).deadline) {
      ++child;
    }
    if (slot(deadlines_[child]).deadline >= slot(index).deadline) break;
    place(position, deadlines_[child]);
    position = child;
  }
  place(position, index);
}

}  // namespace weir::peer
