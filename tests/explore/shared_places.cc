#include "tests/explore/shared_places.h"

#include <utility>

namespace weir::explore {

SharedPlaces::Entry& SharedPlaces::at(std::uint64_t key) {
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = (key * 0x9e3779b97f4a7c15 >> 32) & mask;
  while (table_[slot].key != 0 && table_[slot].key != key) slot = (slot + 1) & mask;
  return table_[slot];
}

bool SharedPlaces::use(const void* address, Location::Kind kind, std::size_t thread, bool is_write) {
  const std::uint64_t key = Memory::key_of(address, kind);
  Entry* entry = &at(key);
  if (entry->is_shared) return true;
  if (entry->key == 0) {
    if (++used_ * 2 >= table_.size()) grow();
    entry = &at(key);
    entry->key = key;
  }
  entry->threads |= static_cast<std::uint8_t>(1u << thread);
  entry->is_written |= is_write;
  entry->is_shared = entry->is_written && (entry->threads & (entry->threads - 1)) != 0;
  has_news_ |= entry->is_shared;
  return entry->is_shared;
}

bool SharedPlaces::take_news() { return std::exchange(has_news_, false); }

void SharedPlaces::grow() {
  std::vector<Entry> old(table_.size() * 2);
  old.swap(table_);
  for (const Entry& entry : old) {
    if (entry.key != 0) at(entry.key) = entry;
  }
}

}  // namespace weir::explore
