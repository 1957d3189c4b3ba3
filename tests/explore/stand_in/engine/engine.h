// In place of engine/engine.h: an engine as calls see it, without a protocol. The peer of every call answers with the
// bytes of the request, after some turns, or never. The rules are those of the real one: a call that is submitted
// completes exactly once, inside a later deliver(), and one that is done already is not cancelled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/segment.h"
#include "base/time.h"
#include "transfer/block_pool.h"
#include "transfer/outgoing_call.h"
#include "weir/error.h"

namespace weir::engine {

struct Train {};

class Engine {
 public:
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};
  explicit Engine(std::uint32_t turns_to_answer) : turns_to_answer_(turns_to_answer) {}

  void submit(transfer::OutgoingCall& call, Instant now);
  void cancel(transfer::OutgoingCall& call, Instant now);
  void release(transfer::OutgoingCall& call, Instant now);
  void fail_held(transfer::OutgoingCall& call, Code code, const char* sentence, Instant now);
  transfer::BlockPool& blocks() { return blocks_; }

  void receive();  // the replies that arrive in this turn
  std::size_t deliver(Instant now);
  void close(Instant now);
  bool has_work() const { return !done_.empty() || (turns_to_answer_ != kNever && !sent_.empty()); }

  std::size_t submitted() const { return submitted_; }
  std::size_t completed() const { return completed_; }

 private:
  struct Sent {
    transfer::OutgoingCall* call;
    std::uint32_t turns;
  };
  struct Done {
    transfer::OutgoingCall* call;
    Code code{};
    bool failed = false;
  };
  void end(transfer::OutgoingCall& call, Code code);

  const std::uint32_t turns_to_answer_;
  std::vector<Sent> sent_;
  std::vector<Done> done_;
  std::size_t submitted_ = 0, completed_ = 0;
  bool is_closed_ = false;
  transfer::BlockPool blocks_;
};

}  // namespace weir::engine
