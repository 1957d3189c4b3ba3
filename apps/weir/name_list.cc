#include "apps/weir/name_list.h"

#include <algorithm>
#include <utility>

namespace weir::command {

void NameList::add(std::string_view name) {
  if (name <= after_ || (!is_complete_ && name >= limit_)) return;
  names_.push_back({static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(name.size())});
  text_ += name;
  if (bytes() > max_bytes_) keep_first_half();
}

void NameList::keep_first_half() {
  if (names_.size() < 2) return;
  const auto middle = names_.begin() + static_cast<std::ptrdiff_t>(names_.size() / 2);
  std::ranges::nth_element(names_, middle, {}, [this](Name name) { return text(name); });
  limit_ = text(*middle);
  is_complete_ = false;
  names_.erase(middle, names_.end());
  std::string kept;
  for (Name& name : names_) {
    const auto at = static_cast<std::uint32_t>(kept.size());
    kept += text(name);
    name.at = at;
  }
  text_ = std::move(kept);
}

void NameList::finish() {
  std::ranges::sort(names_, {}, [this](Name name) { return text(name); });
  // A directory that changes while it is read may tell a name twice.
  const auto twice = std::ranges::unique(names_, {}, [this](Name name) { return text(name); });
  names_.erase(twice.begin(), twice.end());
  text_.shrink_to_fit();
  names_.shrink_to_fit();
}

std::vector<NameList::Name>::const_iterator NameList::behind(std::string_view after) const {
  return std::ranges::upper_bound(names_, after, {}, [this](Name name) { return text(name); });
}

std::vector<std::string> NameList::page(std::string_view after, std::size_t count) const {
  std::vector<std::string> names;
  for (auto at = behind(after); at != names_.end() && names.size() < count; ++at) names.emplace_back(text(*at));
  return names;
}

bool NameList::covers(std::string_view after) const {
  return after >= after_ && (is_complete_ || behind(after) != names_.end());
}

void NameLists::forget_idle(std::chrono::steady_clock::time_point now) {
  std::erase_if(entries_, [&](const Entry& entry) { return now - entry.used > kIdle; });
}

std::shared_ptr<const NameList> NameLists::find(Directory directory, std::string_view after) {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  forget_idle(now);
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.directory == directory && entry.names->covers(after); });
  if (found == entries_.end()) return nullptr;
  found->used = now;
  std::rotate(found, found + 1, entries_.end());
  return entries_.back().names;
}

void NameLists::put(Directory directory, std::shared_ptr<const NameList> names) {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  forget_idle(now);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.directory == directory; });
  if (entries_.size() == kLists) entries_.erase(entries_.begin());
  entries_.push_back({directory, std::move(names), now});
}

std::size_t NameLists::size() {
  std::lock_guard lock(mutex_);
  forget_idle(std::chrono::steady_clock::now());
  return entries_.size();
}

}  // namespace weir::command
