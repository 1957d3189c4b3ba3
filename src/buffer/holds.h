// Holds: who still needs which piece of a payload of several pieces. A piece goes back to its memory as soon as nobody
// does; the payload itself, which lies in its first piece, when the last reference goes.
//
// A piece is held once by all of the application's handles together (it may send the payload to others yet), and once
// by each message that is not known to have arrived so far. Whoever holds a piece may let others hold it, too; once
// nobody does it is free, and cannot be held again.
//
// Any thread, no lock: a count for each piece. Every hold goes with a reference on the payload. A payload of one piece
// has no Holds, and all of this does nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "buffer/sealed.h"
#include "weir/buffer.h"

namespace weir::buffer {

struct Holds {
  explicit Holds(std::size_t pieces);

  std::atomic<std::uint32_t> handles = 1;  // the application's
  std::atomic<std::uint64_t> freed_bytes = 0;
  std::unique_ptr<std::atomic<std::uint32_t>[]> counts;
};

// The pieces with the bytes from `begin` up to `end`, which are not none.
PieceRange pieces_of(const Sealed& sealed, std::uint64_t begin, std::uint64_t end);

// By somebody who holds them already, or whose handle does.
void hold(Sealed& sealed, PieceRange pieces) noexcept;
// By somebody who has let go of them. False: some of them are free, and none is held.
[[nodiscard]] bool hold_again(Sealed& sealed, PieceRange pieces) noexcept;
void let_go(Sealed& sealed, PieceRange pieces) noexcept;

// What a payload's message needs: a reference and a hold.
[[nodiscard]] Sealed* lend(Sealed& sealed, PieceRange pieces) noexcept;
void give_back(Sealed* sealed, PieceRange pieces) noexcept;

// ---- handles: each goes with a reference ----
void copy_handle(Sealed& sealed) noexcept;
void drop_handle(Sealed* sealed) noexcept;
// By somebody with a reference only. False: there is none any more.
[[nodiscard]] bool revive_handle(Sealed& sealed) noexcept;

}  // namespace weir::buffer
