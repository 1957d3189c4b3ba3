// CallerNames: what the certificates prove of those who may call, by credential.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "handshake/outcome.h"

namespace weir::handshake {

// Beside the map of credentials, whose readers may not wait and whose entries have no room for names of any length. Its
// readers come once for each path. Any thread may call find().
class CallerNames {
 public:
  using List = std::shared_ptr<const std::vector<std::string>>;

  // Those that `is_known` does not know are forgotten whenever there are twice as many as there were; so there are
  // never more than kAtLeast, or twice as many as are known. Credentials of one certificate share one list: whoever
  // makes many handshakes takes no more memory for its many names. If the certificates of all have too many, a further
  // one proves nothing to handlers.
  template <class IsKnown>
  void keep(const CredentialId& id, std::vector<std::string> names, IsKnown&& is_known) {
    auto list = std::make_shared<const std::vector<std::string>>(std::move(names));
    std::lock_guard lock(mutex_);
    const bool is_new = !lists_.contains(list);
    if (by_id_.size() >= sweep_at_ || (is_new && list_bytes_ + bytes_of(*list) > kMaxListBytes)) sweep(is_known);
    if (is_new && list_bytes_ + bytes_of(*list) > kMaxListBytes)
      list = std::make_shared<const std::vector<std::string>>();
    const auto [kept, is_added] = lists_.insert(std::move(list));
    if (is_added) list_bytes_ += bytes_of(**kept);
    by_id_[id] = *kept;
  }

  // Null: not known.
  List find(const CredentialId& id) const {
    std::lock_guard lock(mutex_);
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second;
  }

  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return by_id_.size();
  }

  static constexpr std::size_t kAtLeast = 64;
  static constexpr std::size_t kMaxListBytes = std::size_t{16} << 20;  // of all lists; and one empty one
  static constexpr std::size_t kBytesPerCredential = 160;              // beside them

 private:
  struct ByNames {
    bool operator()(const List& one, const List& other) const { return *one < *other; }
  };

  static std::size_t bytes_of(const std::vector<std::string>& names) {
    std::size_t bytes = 160;  // the list itself, and its place
    for (const std::string& name : names) bytes += sizeof name + 16 + name.size();
    return bytes;
  }

  template <class IsKnown>
  void sweep(IsKnown&& is_known) {
    std::erase_if(by_id_, [&](const auto& each) { return !is_known(each.first); });
    std::erase_if(lists_, [this](const List& each) {
      if (each.use_count() != 1) return false;  // a path of it may live
      list_bytes_ -= bytes_of(*each);
      return true;
    });
    sweep_at_ = std::max(kAtLeast, 2 * by_id_.size());
  }

  mutable std::mutex mutex_;
  std::map<CredentialId, List> by_id_;
  std::set<List, ByNames> lists_;
  std::size_t list_bytes_ = 0;
  std::size_t sweep_at_ = kAtLeast;
};

}  // namespace weir::handshake
