// Between a complete request and its handler: room for the answer (docs/protocol.md, rules C-9 and C-10). A request
// that finds none stays in memory, with its credit, until others have given some back.
#include <cstring>

#include "engine/core.h"

namespace weir::engine {

using State = IncomingTransfer::State;

void Core::wait_for_answer_room(Path& path, IncomingTransfer& transfer) {
  const std::uint8_t level = level_of(transfer);
  // The packet that it came in will be gone. To pin that would take a whole receive buffer for a few bytes.
  if (transfer.reassembly == nullptr && transfer.bytes != 0 && !transfer.is_large) {
    transfer::Block* const kept = blocks.acquire(transfer.bytes);
    std::memcpy(kept->bytes(), transfer.delivery.request, transfer.bytes);
    transfer.block = kept;
    transfer.delivery.request = kept->bytes();
    transfer.delivery.pin = kept;
  }
  std::unique_ptr<WaitingRequests>& waiting = waiting_of(path);
  if (waiting == nullptr) waiting = std::make_unique<WaitingRequests>();
  waiting->push_back(transfer, level);
  AnswerLine& line = answer_lines[level];
  AnswerLine::List& list = waiting->list(level, transfer.priority);
  if (!list.hook.queued) line.push_back(list, transfer.priority);
  if (line.has_unseen()) line.forget_seen();  // it may be one of those who find room
  transfer.state = State::waiting;
  ++requests_waiting;
}

void Core::stop_waiting(Path& path, IncomingTransfer& transfer) {
  const std::uint8_t level = level_of(transfer);
  WaitingRequests& waiting = *waiting_of(path);
  waiting.remove(transfer, level);
  AnswerLine::List& list = waiting.list(level, transfer.priority);
  if (list.first == nullptr) answer_lines[level].remove(list);
  --requests_waiting;
}

// By priority and then one request for each member in turn, as far as there is room. Handlers run in deliver(), not
// here.
void Core::serve_answer_line(std::uint8_t level) {
  AnswerLine& line = answer_lines[level];
  for (std::uint32_t step = 0; line.has_unseen() && step < AnswerLine::kStep; ++step) {
    if (answers.is_full(level)) return line.see_all();
    IncomingTransfer& transfer = *line.take_turn().first;
    Path& path = *find_path(transfer.path);  // requests do not wait any longer than their paths are there
    const std::uint32_t room = answer_room_of(transfer);
    if (!answers.take(level, path.accounts[level].answers(), room)) continue;
    stop_waiting(path, transfer);
    line.charge(transfer.priority, room);
    transfer.answer_room = room;
    queue_delivery(transfer);
  }
}

}  // namespace weir::engine
