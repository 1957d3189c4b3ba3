#include "tests/explore/seen.h"

namespace weir::explore {

bool Seen::check_and_add(std::uint64_t key, std::uint8_t left) {
  key |= key == 0;
  if (used_ * 2 >= table_.size()) grow();
  std::size_t at = key & (table_.size() - 1);
  while (table_[at].key != 0 && table_[at].key != key) at = (at + 1) & (table_.size() - 1);
  Entry& entry = table_[at];
  if (entry.key == key && entry.left >= left) return true;
  used_ += entry.key == 0;
  entry = {key, left};
  return false;
}

void Seen::grow() {
  std::vector<Entry> old(table_.size() * 2);
  old.swap(table_);
  for (const Entry& entry : old) {
    if (entry.key == 0) continue;
    std::size_t at = entry.key & (table_.size() - 1);
    while (table_[at].key != 0) at = (at + 1) & (table_.size() - 1);
    table_[at] = entry;
  }
}

}  // namespace weir::explore
