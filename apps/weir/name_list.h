// The names of large directories, kept between the pages of a listing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace weir::command {

// Names in one piece of memory, of bounded size: if there are more than fit, the first ones in their order stay.
class NameList {
 public:
  NameList(std::string after, std::size_t max_bytes) : after_(std::move(after)), max_bytes_(max_bytes) {}

  void add(std::string_view name);  // in any order; those up to `after` are left out
  void finish();                    // all names were added

  // The names that come behind `after`, at most `count`.
  std::vector<std::string> page(std::string_view after, std::size_t count) const;
  // Whether the list knows what comes next behind `after`.
  bool covers(std::string_view after) const;
  // Whether there is a name behind that one.
  bool has_more(std::string_view name) const {
    return !is_complete_ || (!names_.empty() && name < text(names_.back()));
  }
  std::size_t size() const { return names_.size(); }

 private:
  struct Name {
    std::uint32_t at;
    std::uint32_t bytes;
  };
  std::string_view text(Name name) const { return std::string_view(text_).substr(name.at, name.bytes); }
  std::size_t bytes() const { return text_.size() + names_.size() * sizeof(Name); }
  std::vector<Name>::const_iterator behind(std::string_view after) const;
  void keep_first_half();

  const std::string after_;
  const std::size_t max_bytes_;
  std::string text_;
  std::vector<Name> names_;
  bool is_complete_ = true;
  std::string limit_;  // names from this one on are left out, unless complete
};

// A few such lists, so that the pages of a listing need not read the directory again. Any thread.
//
// A list serves pages behind its first one only: who begins a listing reads the directory and sees it as it is. Whoever
// asks for many directories pushes others' lists out; their next page then reads the directory again.
class NameLists {
 public:
  static constexpr std::size_t kLists = 4;
  static constexpr std::size_t kListBytes = 8u << 20;  // about 300,000 names of 20 bytes
  static constexpr std::chrono::seconds kIdle{60};     // a list that nobody asked for so long is freed

  struct Directory {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    bool operator==(const Directory&) const = default;
  };

  // Null: there is none that covers what comes behind `after`.
  std::shared_ptr<const NameList> find(Directory directory, std::string_view after);
  void put(Directory directory, std::shared_ptr<const NameList> names);
  std::size_t size();

 private:
  struct Entry {
    Directory directory;
    std::shared_ptr<const NameList> names;
    std::chrono::steady_clock::time_point used;
  };
  void forget_idle(std::chrono::steady_clock::time_point now);

  std::mutex mutex_;
  std::vector<Entry> entries_;  // the one that was used last is at the end
};

}  // namespace weir::command
