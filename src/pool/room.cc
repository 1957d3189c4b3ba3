// Room for calls: see weir/room.h.
#include "weir/room.h"

#include <memory>
#include <optional>
#include <utility>

#include "pool/awaited.h"
#include "pool/call_rooms.h"
#include "pool/gate.h"
#include "pool/peer_entry.h"
#include "pool/there.h"
#include "weir/pool.h"
#include "worker/thread_context.h"

namespace weir {

namespace detail {

struct RoomRecord final : pool::CallRooms::Waiter, pool::Awaited<CallRoom> {
  RoomRecord(std::shared_ptr<pool::CallRooms> rooms_, std::shared_ptr<worker::Worker> loop)
      : Awaited(std::move(loop)), rooms(std::move(rooms_)) {}

  void on_room(Result<CallRoom> room) noexcept override { tell(std::move(room)); }
  bool stop_waiting() noexcept override { return rooms->cancel(*this); }

  const std::shared_ptr<pool::CallRooms> rooms;
};

bool room_ready(const RoomRecord* record) noexcept { return record->is_ready(); }
bool room_suspend(RoomRecord* record, std::coroutine_handle<> waiter) noexcept { return record->suspend(waiter); }
Result<CallRoom> room_take(RoomRecord* record) { return record->take(); }
Result<CallRoom> room_wait(RoomRecord* record) {
  return record->wait(
      "get() was called inside a handler or continuation on the thread that turns the loop, which may be what the room "
      "waits for: await it");
}
void room_drop(RoomRecord* record) noexcept { record->drop(); }

}  // namespace detail

void CallRoom::give_back() noexcept { rooms_->give_back(); }

RoomRequest Peer::room(const RoomOptions& options) const {
  const detail::PeerState& peer = pool::there(state_);
  if (peer.failure) return RoomRequest(std::unexpected(*peer.failure));
  const std::shared_ptr<pool::Gate>& gate = peer.gate;
  if (gate->is_in_child()) return RoomRequest(std::unexpected(Error(Code::closed, kForked)));
  if (options.priority < 0 || options.priority > 7) {
    return RoomRequest(
        std::unexpected(Error(Code::invalid_argument, "the priority of a call is between 0 (most urgent) and 7")));
  }
  // Calls from inside handlers do not wait for others, which may wait for them.
  if (worker::thread_context.depth != 0) return RoomRequest(CallRoom());
  const auto priority = static_cast<unsigned>(options.priority);
  if (std::optional<CallRoom> now = gate->rooms->try_enter(priority)) return RoomRequest(*std::move(now));
  auto record =
      std::make_unique<detail::RoomRecord>(gate->rooms, gate->worker().has_thread() ? nullptr : gate->shared_worker());
  if (std::optional<Result<CallRoom>> now = gate->rooms->enter(priority, *record)) {
    return RoomRequest(*std::move(now));
  }
  return RoomRequest(record.release());
}

}  // namespace weir
