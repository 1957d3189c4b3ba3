// SourceShares: how much of the handshake port each source has, so that one of them cannot have it all.
//
// A source is an IPv4 address, or the first 64 bits of an IPv6 address: what one host can have many of counts once.
// Only addresses that were proven are counted. A forged one would use up the share of whoever it names.
//
// Two bounds. Held: so many handshakes of one source at once, always. Rate: so many new ones per second; but only while
// more than kBusyPerSecond come in all and somebody else has come within kCompany, because a port with time to spare,
// or with one visitor only, has no reason to refuse. A busy port takes nobody without a proof.
//
// Of a source that is full, an old half-open one makes room for a new one: neighbours of a hostile program on the same
// host are served, if late.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <set>
#include <unordered_map>

#include "base/address.h"
#include "base/time.h"

namespace weir::handshake {

// One per endpoint; one thread at a time. At most max_held sources are held and kMaxIdle others remembered.
class SourceShares {
 public:
  using Serial = std::uint64_t;

  static constexpr std::uint64_t kPerSecond = 64;       // of one source, and as many at once
  static constexpr std::uint64_t kBusyPerSecond = 256;  // of all
  static constexpr Duration kCompany = std::chrono::seconds(1);
  static constexpr std::size_t kMaxIdle = 1024;  // sources that hold nothing; the longest idle one is forgotten
  static constexpr std::size_t kLeastHeld = 8;

  // `max_held`: handshakes of all sources together. One has a quarter of them, unless `max_per_source` says otherwise.
  SourceShares(std::size_t max_held, std::size_t max_per_source);

  // Whether one more may begin that says it is of this source. False: it must prove it first.
  bool admit_unproven(const Address& source, Instant now);
  // The same for one that has. False: it may not.
  bool admit(const Address& source, Instant now);
  // The oldest of a source that holds as many as it may and could give one up; 0: there is none, or room.
  Serial oldest_if_full(const Address& source) const;
  // A proven one has begun (or one that has begun is proven), and later it ended. Pairs; serials ascend with age.
  void hold(const Address& source, Serial serial, Instant now);
  void release(const Address& source, Serial serial);
  // It is half open no more: not one to be given up.
  void establish(const Address& source, Serial serial);

  std::size_t known() const { return sources_.size(); }

 private:
  using Key = std::array<std::uint8_t, 16>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return AddressHash{}(Address{.ip = key}); }
  };
  // Counts in billionths of a handshake, so that a nanosecond's worth is a whole number. Begins full.
  struct Bucket {
    std::uint64_t level;
    Instant filled;
    void fill(std::uint64_t per_second, Instant now);
    bool take();
  };
  struct Source {
    std::size_t held = 0;
    std::set<Serial> half_open;  // of these
    Bucket rate;
    std::list<Key>::iterator idle;  // its place in idle_, while it holds nothing
  };

  static Key key_of(const Address& source);
  bool is_full(const Key& key) const;
  Source& use(const Key& key, Instant now);

  const std::size_t max_per_source_;
  std::unordered_map<Key, Source, KeyHash> sources_;
  std::list<Key> idle_;  // longest first
  Bucket all_;
  // The two latest visitors, to know whether anybody but one was here lately.
  Key latest_{};
  Key other_{};
  Instant latest_at_{};
  Instant other_at_{};
};

}  // namespace weir::handshake
