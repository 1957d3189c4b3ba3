// The table of regions under operations in any order, beside a plain record of every grant there ever was.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/check.h"
#include "token/dice_testing.h"
#include "token/region_table.h"
#include "token/region_testing.h"

namespace weir::token {

class RegionModel {
 public:
  static constexpr std::size_t kPaths = 3;
  static constexpr std::uint64_t kCapacity = 200;
  static constexpr Duration kIdle = Duration(100);
  static constexpr Duration kLifetime = Duration(600);

  explicit RegionModel(Dice& dice) : dice_(dice) {}

  void step() {
    now_ = now_ + Duration(static_cast<std::int64_t>(dice_.below(4)));
    switch (dice_.below(10)) {
      case 0:
      case 1:
        grant();
        break;
      case 2:
        if (Record* record = any(RegionState::granted)) bind(*record);
        break;
      case 3:
      case 4:
      case 5:
        write();
        break;
      case 6:
        if (Record* record = any(dice_.one_in(2) ? RegionState::granted : RegionState::complete)) revoke(*record);
        break;
      case 7:
        acknowledge();
        break;
      case 8:
        if (Record* record = any(RegionState::complete)) take(*record);
        break;
      default:
        if (dice_.one_in(8)) {
          end_path(dice_.below(kPaths));
        } else if (Record* record = any(RegionState::granted)) {
          table_.renew(*record->region, now_);
          record->expires = now_ + kLifetime;
        }
        break;
    }
    if (dice_.one_in(4)) expire();
    check();
  }

  std::uint64_t writes() const { return writes_; }
  std::uint64_t refusals() const { return refusals_; }
  std::uint64_t completed() const { return table_.counters().completed; }
  std::uint64_t expired() const { return table_.counters().expired; }

 private:
  struct Record {
    std::uint64_t id = 0;
    std::size_t path = 0;
    Fence::Kind fence{};
    RegionState state = RegionState::granted;
    Region* region = nullptr;
    std::unique_ptr<TestLanding> landing;
    bool bound = false;
    std::uint64_t bytes = 0;
    std::array<bool, kCapacity> there{};
    Instant last_write{}, expires{};

    std::uint64_t prefix() const {
      return static_cast<std::uint64_t>(std::find(there.begin(), there.end(), false) - there.begin());
    }
  };

  // A record in that state, if there is one.
  Record* any(RegionState state) {
    std::vector<Record*> all;
    for (auto& [id, record] : records_) {
      if (record.state == state) all.push_back(&record);
    }
    return all.empty() ? nullptr : all[dice_.below(all.size())];
  }
  std::uint64_t serial(std::size_t path) const { return serials_[path]; }

  void grant() {
    const std::size_t path = dice_.below(kPaths);
    // Leaks are rare, or nothing would be left.
    const auto fence = dice_.one_in(32)  ? Fence::Kind::none
                       : dice_.one_in(3) ? Fence::Kind::peer_acknowledged
                                         : Fence::Kind::immediate;
    auto landing = std::make_unique<TestLanding>(1 + dice_.below(kCapacity));
    Region* const region = table_.grant({.landing = landing.get(),
                                         .path = static_cast<std::uint32_t>(path),
                                         .path_serial = serial(path),
                                         .regions = &paths_[path],
                                         .fence = {fence}},
                                        now_);
    if (region == nullptr) {
      WEIR_CHECK(table_.is_full(), "a table with room refused a grant");
      return;
    }
    WEIR_CHECK(region->id != wire::kNoRegion && ever_.insert(region->id).second, "a name was used twice");
    Record& record = records_[region->id];
    record.id = region->id;
    record.path = path;
    record.fence = fence;
    record.region = region;
    record.landing = std::move(landing);
    record.expires = now_ + kLifetime;
  }

  void bind(Record& record) {
    const std::uint64_t bytes = 1 + dice_.below(dice_.one_in(2) ? 40 : kCapacity);
    const bool allowed = !record.bound && bytes <= record.landing->capacity;
    const bool bound =
        table_.bind(*record.region, {.side = wire::Side::reply, .transfer = record.id, .bytes = bytes}, now_);
    WEIR_CHECK(bound == allowed, "a region is bound once, to what fits");
    if (!bound) return;
    record.bound = true;
    record.bytes = bytes;
    record.last_write = now_;
    complete_if_covered(record);
  }

  // By whomever, to whatever.
  void write() {
    const std::size_t path = dice_.below(kPaths);
    std::uint64_t id = 0;
    if (dice_.one_in(8) || records_.empty()) {
      id = dice_.one_in(2) ? dice_.below(~std::uint64_t{0}) : RegionId{std::uint32_t(dice_.below(10)), 1}.packed();
    } else if (Record* record = dice_.one_in(3) ? nullptr : any(RegionState::granted)) {
      id = record->id;
    } else {
      auto at = records_.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(dice_.below(records_.size())));
      id = at->first;
    }
    const bool own = !dice_.one_in(8);
    const auto found = records_.find(id);
    Record* const record = found == records_.end() ? nullptr : &found->second;
    const std::uint64_t by = own && record != nullptr ? granted_to(*record) : serial(path);
    std::uint64_t offset = dice_.one_in(16) ? dice_.below(~std::uint64_t{0}) : dice_.below(kCapacity);
    if (record != nullptr && dice_.one_in(2)) offset = record->prefix();
    std::uint64_t length = dice_.one_in(16) ? dice_.below(~std::uint64_t{0}) : dice_.below(kCapacity / 4);
    if (record != nullptr && record->bound && record->bytes > offset && dice_.one_in(2))
      length = record->bytes - offset;
    const auto verdict = table_.check_write({.region = id, .path_serial = by, .offset = offset, .length = length});

    WriteRefusal expected = WriteRefusal::none;
    if (record == nullptr) {
      expected = ever_.contains(id) ? WriteRefusal::revoked : WriteRefusal::unknown;
    } else if (record->state != RegionState::granted) {
      expected = WriteRefusal::revoked;
    } else if (granted_to(*record) != by) {
      expected = WriteRefusal::foreign;
    } else {
      const std::uint64_t limit = record->bound ? record->bytes : record->landing->capacity;
      if (length == 0 || length > limit || offset > limit - length) expected = WriteRefusal::outside;
    }
    WEIR_CHECK(verdict.refusal == expected, "a write was judged wrongly");
    if (expected != WriteRefusal::none) {
      ++refusals_;
      ++refused_[static_cast<std::size_t>(expected)];
      WEIR_CHECK(verdict.region == nullptr, "a refused write was given a region");
      return;
    }
    WEIR_CHECK(verdict.region == record->region, "a write was given another region");
    cover(*record, offset, offset + length);
  }

  void cover(Record& record, std::uint64_t begin, std::uint64_t end) {
    const auto first = record.there.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = record.there.begin() + static_cast<std::ptrdiff_t>(end);
    const bool news = std::find(first, last, false) != last;
    const bool covered = table_.cover(*record.region, {begin, end}, now_);
    WEIR_CHECK(covered, "200 bytes cannot have too many holes at this length");
    std::fill(first, last, true);
    if (news && record.bound) record.last_write = now_;
    ++writes_;
    complete_if_covered(record);
  }

  void complete_if_covered(Record& record) {
    WEIR_CHECK(record.region->coverage.prefix() == record.prefix(), "the region forgot bytes or made some up");
    WEIR_CHECK(record.region->is_covered() == (record.bound && record.prefix() >= record.bytes), "covered or not");
    if (!record.region->is_covered() || dice_.one_in(2)) return;
    table_.complete(*record.region);
    record.state = RegionState::complete;
  }

  void revoke(Record& record) {
    table_.revoke(*record.region, now_);
    on_revoked(record);
  }
  void on_revoked(Record& record) {
    switch (record.fence) {
      case Fence::Kind::immediate:
        record.state = RegionState::free;
        break;
      case Fence::Kind::peer_acknowledged:
        record.state = RegionState::quarantined;
        break;
      case Fence::Kind::none:
        record.state = RegionState::leaked;
        break;
    }
  }

  void acknowledge() {
    Record* const record = any(RegionState::quarantined);
    if (record == nullptr) {
      WEIR_CHECK(!table_.on_fenced({.region = dice_.below(1'000)}), "there was nothing to acknowledge");
      return;
    }
    const bool liar = dice_.one_in(4);
    const bool done = table_.on_fenced({.region = record->id, .path_serial = granted_to(*record) + (liar ? 1'000 : 0)});
    WEIR_CHECK(done != liar, "only the path that had it acknowledges");
    if (done) record->state = RegionState::free;
  }

  void take(Record& record) {
    WEIR_CHECK(table_.take_landing(*record.region) == record.landing.get(), "another's memory");
    WEIR_CHECK(!record.landing->came_back, "memory that was handed over had been given back");
    detail::unpin(record.landing.get());
    record.state = RegionState::free;
  }

  void end_path(std::size_t path) {
    table_.end_path(paths_[path], now_);
    WEIR_CHECK(paths_[path].first == nullptr && paths_[path].count == 0, "a path that ended has regions");
    for (auto& [id, record] : records_) {
      const bool live = record.state == RegionState::granted || record.state == RegionState::complete;
      if (live && record.path == path) on_revoked(record);
    }
    for (auto& [id, record] : records_) {
      if (record.path == path) former_.try_emplace(id, serials_[path]);
    }
    serials_[path] += kPaths;
  }
  std::uint64_t granted_to(const Record& record) const {
    const auto found = former_.find(record.id);
    return found != former_.end() ? found->second : serials_[record.path];
  }

  Instant deadline(const Record& record) const {
    if (record.state != RegionState::granted) return Instant::never();
    return record.bound ? earliest(record.expires, record.last_write + kIdle) : record.expires;
  }

  void expire() {
    table_.expire(now_, [&](Region& region, RegionTable::Due due) {
      Record& record = records_.at(region.id);
      WEIR_CHECK(deadline(record) <= now_, "a region was taken back before its time");
      const bool idle = record.bound && record.last_write + kIdle <= now_;
      WEIR_CHECK((due == RegionTable::Due::idle) == idle, "for another reason");
      if (dice_.one_in(3)) {  // stays, as far as this reason goes
        if (idle) {
          table_.excuse(region, now_);
          record.last_write = now_;
        } else {
          table_.renew(region, now_);
          record.expires = now_ + kLifetime;
        }
        return;
      }
      on_revoked(record);
    });
    for (const auto& [id, record] : records_) WEIR_CHECK(deadline(record) > now_, "a region outlived its deadline");
  }

  void check() {
    std::array<std::uint32_t, kPaths> count{};
    std::uint32_t granted = 0, complete = 0, quarantined = 0;
    Instant next = Instant::never();
    for (const auto& [id, record] : records_) {
      next = earliest(next, deadline(record));
      granted += record.state == RegionState::granted;
      complete += record.state == RegionState::complete;
      quarantined += record.state == RegionState::quarantined;
      const bool listed = record.state == RegionState::granted || record.state == RegionState::complete ||
                          record.state == RegionState::quarantined;
      if (listed && !former_.contains(id)) ++count[record.path];
      WEIR_CHECK(record.landing->came_back == (record.state == RegionState::free), "memory comes back when it is free");
      WEIR_CHECK((table_.find(id) == record.region) == (record.state == RegionState::granted), "found while granted");
    }
    WEIR_CHECK(table_.next_deadline() == next, "the next deadline is the earliest");
    WEIR_CHECK(table_.in_state(RegionState::granted) == granted && table_.live() == granted + complete &&
                   table_.in_state(RegionState::quarantined) == quarantined,
               "states are counted");
    for (std::size_t path = 0; path < kPaths; ++path) {
      std::uint32_t seen = 0;
      table_.for_each_of_path(paths_[path], [&](Region& region) {
        WEIR_CHECK(region.path_serial == serial(path), "a region in the list of another path");
        ++seen;
      });
      WEIR_CHECK(seen == count[path] && paths_[path].count == seen, "a path knows its regions");
    }
    WEIR_CHECK(table_.counters().refused == refused_, "refused writes are counted by reason");
    if (records_.size() > 100) forget_free();
  }
  // Only their names count from then on.
  void forget_free() {
    std::erase_if(records_, [](const auto& one) { return one.second.state == RegionState::free; });
    std::erase_if(former_, [&](const auto& one) { return !records_.contains(one.first); });
  }

  Dice& dice_;
  Instant now_{};
  std::map<std::uint64_t, Record> records_;        // before the table: it lets go of their landings
  std::set<std::uint64_t> ever_;                   // every name there was
  std::map<std::uint64_t, std::uint64_t> former_;  // serials of paths that have ended
  std::array<std::uint64_t, kPaths> serials_{1, 2, 3};
  std::array<PathRegions, kPaths> paths_;
  RegionTable table_{{.max_regions = 64, .idle_timeout = kIdle, .lifetime = kLifetime, .last_generation = 1'000}};
  std::array<std::uint64_t, kWriteRefusals> refused_{};
  std::uint64_t writes_ = 0;
  std::uint64_t refusals_ = 0;
};

}  // namespace weir::token
