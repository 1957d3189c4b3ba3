// Arrival: the receiver's half of a large message, from its opening until all of it is there.
#pragma once

#include <cstdint>

#include "schedule/timing_wheel.h"
#include "token/grant_ledger.h"
#include "token/region_table.h"
#include "transfer/block_pool.h"
#include "wire/large_frame.h"

namespace weir::transfer {

struct IncomingTransfer;
struct OutgoingCall;

// Lives in a slab of one engine. It is of one request or one reply.
struct Arrival {
  token::Ask ask;  // for memory
  IncomingTransfer* transfer = nullptr;
  OutgoingCall* call = nullptr;
  wire::TransferId id;
  std::uint32_t path = 0;
  wire::CargoFrame cargo;
  Block* header = nullptr;  // the application's, until there is memory to put it into
  std::uint16_t header_bytes = 0;
  std::uint8_t lost_regions = 0;  // that we took back from it
  int numa_node = -1;             // that its memory is wished for on; -1: where the engine's is
  bool opens_ahead = false;       // its records are opened as they come
  bool is_writing = false;        // counted as one that is being written (rule G-13)
  std::uint64_t number = 0;       // of this message among all that were opened at this engine
  std::uint64_t region = wire::kNoRegion;
  std::uint64_t lost_region = wire::kNoRegion;  // the last of these
  schedule::Timer timer;                        // armed while its sender should ask for another

  bool is_reply() const { return call != nullptr; }
  wire::Side side() const { return is_reply() ? wire::Side::reply : wire::Side::request; }
};

}  // namespace weir::transfer
