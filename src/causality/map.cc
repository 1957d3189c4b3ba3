#include "causality/map.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace weir::causality {
namespace {

constexpr unsigned kIndexBits = 24;
constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;
constexpr std::uint64_t kLastGeneration = (std::uint64_t{1} << (64 - kIndexBits)) - 1;

// In the place of a list's first node.
constexpr std::uint64_t kMet = kIndexMask - 1, kFailed = kIndexMask - 2;  // Map::kNobody is kIndexMask
static_assert(Map::kMaxWaiting < kFailed && Map::kMaxTracked <= kIndexMask);

constexpr std::uint32_t index_of(std::uint64_t word) { return static_cast<std::uint32_t>(word & kIndexMask); }
constexpr std::uint64_t generation_of(std::uint64_t word) { return word >> kIndexBits; }
constexpr std::uint64_t word_of(std::uint64_t generation, std::uint64_t index) {
  return generation << kIndexBits | index;
}
constexpr bool has_come(std::uint64_t word) { return index_of(word) == kMet || index_of(word) == kFailed; }

// How a transfer ended, as its slot remembers it.
enum class End : std::uint8_t { well, failed_when_sent, failed_before };
constexpr unsigned kEndBits = 2, kEraBits = 20;
constexpr std::uint64_t kEraMask = (std::uint64_t{1} << kEraBits) - 1;
static_assert(kEraBits + Map::kRemembered * kEndBits <= 64);

constexpr std::uint64_t remember(std::uint64_t history, std::uint64_t generation, End end) {
  const std::uint64_t ends = (history >> kEraBits) << kEndBits | static_cast<std::uint64_t>(end);
  return ends << kEraBits | (generation & kEraMask);
}
constexpr End recall(std::uint64_t history, std::uint64_t generation) {
  const std::uint64_t age = (history - generation) & kEraMask;
  return static_cast<End>(history >> (kEraBits + age * kEndBits) & 3);
}

}  // namespace

Map::Map(std::uint32_t max_tracked, std::uint32_t max_waiting, std::uint32_t long_list)
    : long_list_(long_list),
      slots_(std::min(max_tracked, kMaxTracked)),
      nodes_(std::min(max_waiting, kMaxWaiting)),
      resting_(std::max(2u, std::bit_ceil(slots_.max))),
      free_nodes_(kNobody) {}

Map::~Map() {
  for (std::uint32_t i = 0; i < made_slots_.load(std::memory_order_relaxed); ++i) {
    for (sync::Atomic<std::uint64_t>* moment : {&slots_[i].sent, &slots_[i].responded}) {
      std::uint64_t at = moment->load(std::memory_order_relaxed);
      if (has_come(at)) continue;
      for (std::uint32_t node = index_of(at); node != kNobody; node = nodes_[node].next.load()) {
        nodes_[node].waiter->release();
      }
    }
  }
}

// More of them, at rest. False: there are as many as there may be.
bool Map::make_slots() {
  const std::lock_guard lock(growing_);
  const std::uint32_t first = made_slots_.load(std::memory_order_relaxed);
  if (first == slots_.max) return false;
  const std::uint32_t count = std::min(kSegment, slots_.max - first);
  // Release, both: who finds the segment finds its slots made.
  slots_.segments[first / kSegment].store(new Slot[kSegment], std::memory_order_release);
  made_slots_.store(first + count, std::memory_order_release);
  for (std::uint32_t i = 0; i < count; ++i) rest(first + i);
  return true;
}

// There are as many places as slots; but one may be on its way out just now.
void Map::rest(std::uint32_t slot) {
  while (!resting_.try_push(slot)) {
  }
}

Token Map::begin() {
  std::uint32_t index = 0;
  // Relaxed: how many rest exactly matters to nobody.
  const std::size_t made = made_slots_.load(std::memory_order_relaxed);
  const std::size_t used = std::min(made, tracked_.load(std::memory_order_relaxed));
  if (made - used < kResting && made < slots_.max) make_slots();
  while (!resting_.try_pop(index)) {
    if (!make_slots()) return 0;
  }
  Slot& slot = slots_[index];
  // Ours alone.
  const std::uint64_t generation = generation_of(slot.responded.load(std::memory_order_relaxed)) + 1;
  // Release: who sees this generation sees how those before ended.
  slot.sent.store(word_of(generation, kNobody), std::memory_order_release);
  slot.responded.store(word_of(generation, kNobody), std::memory_order_release);
  tracked_.fetch_add(1, std::memory_order_relaxed);
  return word_of(generation, index);
}

Map::Slot* Map::find(Token token) {
  const std::uint32_t index = index_of(token);
  return index < made_slots_.load(std::memory_order_acquire) ? &slots_[index] : nullptr;
}

void Map::note_sent(Token token) {
  Slot* const slot = find(token);
  WEIR_CHECK(slot != nullptr, "a token names a transfer that began");
  // Acquire: sees the nodes of the list. Release: what was done before the moment came.
  const std::uint64_t list = slot->sent.exchange(word_of(generation_of(token), kMet), std::memory_order_acq_rel);
  WEIR_CHECK(generation_of(list) == generation_of(token) && !has_come(list), "a transfer is sent once, and then ends");
  settle(list, false);
}

void Map::end(Token token, bool has_failed) {
  Slot* const slot = find(token);
  const std::uint64_t generation = generation_of(token);
  WEIR_CHECK(slot != nullptr && generation_of(slot->responded.load(std::memory_order_relaxed)) == generation,
             "a transfer ends once");
  const bool was_sent = index_of(slot->sent.load(std::memory_order_relaxed)) == kMet;
  const End end = !has_failed ? End::well : was_sent ? End::failed_when_sent : End::failed_before;
  slot->history.store(remember(slot->history.load(std::memory_order_relaxed), generation, end),
                      std::memory_order_release);  // who sees it sees this generation, at least: see look_back()
  const std::uint64_t outcome = word_of(generation, has_failed ? kFailed : kMet);
  const std::uint64_t list = slot->responded.exchange(outcome, std::memory_order_acq_rel);
  WEIR_CHECK(!has_come(list), "a transfer ends once");
  const std::uint64_t early =
      was_sent ? word_of(generation, kNobody) : slot->sent.exchange(outcome, std::memory_order_acq_rel);
  settle(early, has_failed);
  settle(list, has_failed);
  tracked_.fetch_sub(1, std::memory_order_relaxed);
  if (generation == kLastGeneration) return;  // retired: its tokens are used up
  rest(index_of(token));
}

// Anything but `waits`: the moment has come, or has been and gone.
Registration Map::look(const Slot& slot, std::uint64_t word, const Condition& condition) const {
  if (generation_of(word) != generation_of(condition.token)) return look_back(slot, condition);
  if (!has_come(word)) return Registration::waits;
  return index_of(word) == kMet || condition.or_failed ? Registration::met : Registration::failed;
}

Registration Map::add(Waiter& waiter, const Condition& condition) {
  Slot* const slot = find(condition.token);
  if (slot == nullptr) return condition.or_failed ? Registration::met : Registration::forgotten;
  // Acquire: as in link().
  const std::uint64_t word = moment_of(*slot, condition.moment).load(std::memory_order_acquire);
  Registration found = look(*slot, word, condition);
  if (found != Registration::waits) return found;
  std::uint32_t index = kNobody;
  if (!take_node(index)) {
    sweep_all();
    if (!take_node(index)) return Registration::full;
  }
  Node& node = nodes_[index];
  node.waiter = &waiter;
  node.or_failed = condition.or_failed;
  waiter.hold();
  waiting_.fetch_add(1, std::memory_order_relaxed);
  std::uint32_t length = 1;
  found = link(*slot, index, condition, length);
  if (found == Registration::waits) {
    if (length >= long_list_ && std::has_single_bit(length)) [[unlikely]]
      sweep(*slot, condition.moment);
    return found;
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  waiter.release();
  give_nodes(index, index);
  return found;
}

Registration Map::link(Slot& slot, std::uint32_t index, const Condition& condition, std::uint32_t& length) {
  sync::Atomic<std::uint64_t>& moment = moment_of(slot, condition.moment);
  const std::uint32_t least = length;
  Node& node = nodes_[index];
  // Acquire: with a newer generation, how the one before ended; with the moment, what led to it.
  std::uint64_t word = moment.load(std::memory_order_acquire);
  do {
    const Registration found = look(slot, word, condition);
    if (found != Registration::waits) return found;
    const std::uint32_t next = index_of(word);
    node.next.store(next, std::memory_order_relaxed);
    // Of a list that somebody has taken meanwhile this is another's number; but then the exchange fails.
    length = std::max(least, next == kNobody ? 1 : nodes_[next].length.load(std::memory_order_relaxed) + 1);
    node.length.store(length, std::memory_order_relaxed);
    // Release: who takes the list sees the node. From then on it is anybody's.
  } while (!moment.compare_exchange_weak(word, word_of(generation_of(word), index), std::memory_order_release,
                                         std::memory_order_acquire));
  return Registration::waits;
}

// The transfer is gone, and its slot serves another.
Registration Map::look_back(const Slot& slot, const Condition& condition) const {
  if (condition.or_failed) return Registration::met;
  const std::uint64_t generation = generation_of(condition.token);
  // In this order: the history is not newer than the generation that is looked at next, so that ages cannot be
  // mistaken.
  const std::uint64_t history = slot.history.load(std::memory_order_acquire);
  const std::uint64_t current = generation_of(slot.responded.load(std::memory_order_acquire));
  if (generation > current || current - generation >= kRemembered || generation == 0) return Registration::forgotten;
  switch (recall(history, generation)) {
    case End::well:
      return Registration::met;
    case End::failed_when_sent:
      return condition.moment == Moment::sent ? Registration::met : Registration::failed;
    default:
      return Registration::failed;
  }
}

// Those who came first are at the end of a list, which is ours alone.
std::uint32_t Map::reverse(std::uint32_t first) {
  std::uint32_t reversed = kNobody;
  while (first != kNobody) {
    const std::uint32_t next = nodes_[first].next.load(std::memory_order_relaxed);
    nodes_[first].next.store(reversed, std::memory_order_relaxed);
    reversed = first;
    first = next;
  }
  return reversed;
}

void Map::settle(std::uint64_t list, bool has_failed) {
  const std::uint32_t first = reverse(index_of(list));
  if (first == kNobody) return;
  std::uint32_t last = first;
  std::size_t count = 0;
  for (std::uint32_t index = first; index != kNobody; index = nodes_[index].next.load(std::memory_order_relaxed)) {
    Node& node = nodes_[index];
    has_failed && !node.or_failed ? node.waiter->fail() : node.waiter->meet();
    node.waiter->release();
    last = index;
    ++count;
  }
  waiting_.fetch_sub(count, std::memory_order_relaxed);
  give_nodes(first, last);
}

// Takes the list, and puts those back who have not left. Whoever finds that the moment has come meanwhile is told here.
void Map::sweep(Slot& slot, Moment which) {
  sync::Atomic<std::uint64_t>& moment = moment_of(slot, which);
  std::uint64_t list = moment.load(std::memory_order_relaxed);
  do {
    if (has_come(list) || index_of(list) == kNobody) return;
    // Acquire: sees the nodes.
  } while (!moment.compare_exchange_weak(list, word_of(generation_of(list), kNobody), std::memory_order_acquire,
                                         std::memory_order_relaxed));
  const std::uint32_t first = reverse(index_of(list));
  std::uint32_t staying = 0;
  for (std::uint32_t index = first; index != kNobody; index = nodes_[index].next.load(std::memory_order_relaxed)) {
    staying += !nodes_[index].waiter->has_left();
  }
  std::uint32_t next = kNobody, stayed = 0;
  for (std::uint32_t index = first; index != kNobody; index = next) {
    Node& node = nodes_[index];
    next = node.next.load(std::memory_order_relaxed);
    Waiter* const waiter = node.waiter;
    if (!waiter->has_left()) {
      const Condition condition{.token = word_of(generation_of(list), 0), .moment = which, .or_failed = node.or_failed};
      // The last one counts for more, so that the next time is when as many have come again.
      std::uint32_t length = ++stayed == staying ? std::bit_ceil(staying + 1) : 1;
      const Registration found = link(slot, index, condition, length);
      if (found == Registration::waits) continue;
      found == Registration::met ? waiter->meet() : waiter->fail();
    }
    waiter->release();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    give_nodes(index, index);
  }
}

// There is no node left. Those who have left may have all of them, in lists none of which is long. Where nobody has,
// this takes long and helps nobody: it is not done every time.
void Map::sweep_all() {
  if (fulls_.fetch_add(1, std::memory_order_relaxed) % kFullsPerSweep != 0) return;
  const std::uint32_t made = made_slots_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < made; ++i) {
    sweep(slots_[i], Moment::sent);
    sweep(slots_[i], Moment::responded);
  }
}

bool Map::take_node(std::uint32_t& index) {
  // Acquire: the node as its last user left it.
  std::uint64_t top = free_nodes_.load(std::memory_order_acquire);
  for (;;) {
    if (index_of(top) == kNobody) {
      if (!make_nodes()) return false;
      top = free_nodes_.load(std::memory_order_acquire);
      continue;
    }
    // May be somebody else's by now; then the count has changed.
    const std::uint32_t next = nodes_[index_of(top)].next.load(std::memory_order_relaxed);
    if (free_nodes_.compare_exchange_weak(top, word_of(generation_of(top) + 1, next), std::memory_order_acquire)) {
      index = index_of(top);
      return true;
    }
  }
}

bool Map::make_nodes() {
  const std::lock_guard lock(growing_);
  if (index_of(free_nodes_.load(std::memory_order_acquire)) != kNobody) return true;  // somebody else has
  if (made_nodes_ == nodes_.max) return false;
  const std::uint32_t first = made_nodes_, count = std::min(kSegment, nodes_.max - first);
  auto* const segment = new Node[kSegment];
  for (std::uint32_t i = 0; i < count; ++i) segment[i].next.store(first + i + 1, std::memory_order_relaxed);
  nodes_.segments[first / kSegment].store(segment, std::memory_order_release);
  made_nodes_ += count;
  give_nodes(first, first + count - 1);
  return true;
}

// A chain of them.
void Map::give_nodes(std::uint32_t first, std::uint32_t last) {
  std::uint64_t top = free_nodes_.load(std::memory_order_relaxed);
  do {
    nodes_[last].next.store(index_of(top), std::memory_order_relaxed);
    // Release: as the taker's acquire.
  } while (!free_nodes_.compare_exchange_weak(top, word_of(generation_of(top) + 1, first), std::memory_order_release,
                                              std::memory_order_relaxed));
}

}  // namespace weir::causality
