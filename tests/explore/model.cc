#include "tests/explore/model.h"

#include <cstring>

namespace weir::explore {

Memory::Memory() : table_(1 << 12) {}

void Memory::reset() {
  used_ = 0;
  ++run_;
}

void Memory::restore_outside() {
  for (std::size_t i = 0; i < used_; ++i) {
    const Location& location = locations_[i];
    if (location.block != nullptr || location.stores.empty()) continue;
    std::memcpy(reinterpret_cast<void*>(location.address), &location.stores.front().value, location.bytes);
  }
}

std::size_t Memory::slot_of(std::uint64_t key) const {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = (key * 0x9e3779b97f4a7c15 >> 32) & mask;
  while (table_[at].run == run_ && table_[at].key != key) at = (at + 1) & mask;
  return at;
}

Location* Memory::find(const void* address, Location::Kind kind) {
  const Entry& entry = table_[slot_of(key_of(address, kind))];
  return entry.run == run_ ? &locations_[entry.index] : nullptr;
}

Location& Memory::at(const void* address, Location::Kind kind) {
  const std::uint64_t key = key_of(address, kind);
  std::size_t slot = slot_of(key);
  if (table_[slot].run == run_) return locations_[table_[slot].index];
  if (used_ * 2 >= table_.size()) {
    grow();
    slot = slot_of(key);
  }
  table_[slot] = {.key = key, .run = run_, .index = static_cast<std::uint32_t>(used_)};
  if (used_ == locations_.size()) {
    locations_.emplace_back();
    addresses_.emplace_back();
  }
  addresses_[used_] = reinterpret_cast<std::uintptr_t>(address);
  Location& location = locations_[used_++];
  // Keeps the capacity of the vectors.
  std::vector<Stored> stores = std::move(location.stores);
  std::vector<Observation> observations = std::move(location.observations);
  stores.clear();
  observations.clear();
  location = Location{};
  location.stores = std::move(stores);
  location.observations = std::move(observations);
  location.address = reinterpret_cast<std::uintptr_t>(address);
  location.kind = kind;
  location.number = static_cast<std::uint32_t>(used_);
  location.block = arena::find(address);
  return location;
}

void Memory::grow() {
  std::vector<Entry> old(table_.size() * 2);
  old.swap(table_);
  for (const Entry& entry : old) {
    if (entry.run == run_) table_[slot_of(entry.key)] = entry;
  }
}

}  // namespace weir::explore
