// Placements: what a pool's peers may put into and get from, by name.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/bytes.h"
#include "weir/buffer.h"
#include "weir/bulk.h"
#include "weir/error.h"

namespace weir::pool {

// One placement. Any thread. Every access holds one of its locks, shared or alone, so that once retire() has returned
// nobody touches its memory or file any more, and nothing of the application's runs on its behalf.
class Placed {
 public:
  static Result<std::shared_ptr<Placed>> open(std::string name, Placement placement);
  Placed(std::string name, Placement::Parts parts, int file);
  ~Placed();
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

  // Permission and range. A get may end beyond what there is: it gets less.
  Result<void> check(const BulkRequest& request);
  // The application's word, too. It may take a while.
  Result<void> admit(const BulkRequest& request);
  Result<std::uint64_t> bytes();

  // A whole verified record. Where it cannot be written as a whole, what was there before stays.
  Result<void> write(std::uint64_t offset, ByteSpan text);
  // Seals what lies at `offset` into `room`, all of which is there.
  Result<Payload> seal(std::uint64_t offset, Buffer room);
  Result<void> sync();

  // Waits for who is inside; lets nobody in from then on. An error: the caller is inside.
  Result<void> retire();
  // Does not wait for who is inside.
  void retire_soon() { is_retiring_.store(true, std::memory_order_release); }

 private:
  Error gone() const;
  Error failed(const char* what) const;
  Result<std::uint64_t> bytes_locked() const;
  Result<void> write_file(std::uint64_t offset, ByteSpan text) const;

  const std::string name_;
  const Placement::Parts parts_;
  const int file_;  // -1: memory
  std::atomic<bool> is_retiring_{false};
  // Of what lies there. Alone: writers, so that nobody reads half a record, and file and cache hold the same one.
  std::shared_mutex mutex_;
  // Shared by what takes a while, and must not keep out who writes or reads: the guard, a tee's function, a sync.
  std::shared_mutex visit_mutex_;
};

// One per pool. Any thread.
class Placements {
 public:
  static constexpr std::size_t kMaxPlacements = 65'536;

  Result<void> add(std::string_view name, Placement placement);
  Result<void> remove(std::string_view name);
  Result<std::shared_ptr<Placed>> find(std::string_view name);
  // All of them; the pool is closed. Who is inside is waited for, unless it may stay there.
  enum class Visitors : std::uint8_t { are_waited_for, may_stay };
  void clear(Visitors visitors);

 private:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Placed>, TextHash, std::equal_to<>> by_name_;
};

}  // namespace weir::pool
