// Between a complete request and its handler: room for the answer (docs/protocol.md, rules C-9 and C-10). A request
// that finds none stays in memory, with its credit, until others have given some back.
#include <cstring>

#include "engine/core.h"

namespace weir::engine {

using State = IncomingTransfer::State;

void Core::wait_for_answer_room(Path& path, IncomingTransfer& transfer) {
  const std::uint8_t level = level_of(transfer);
  // The packet that it came in will be gone. To pin that would take a whole receive buffer for a few bytes.
  if (transfer.reassembly == nullptr && transfer.bytes != 0) {
    transfer::Block* const kept = blocks.acquire(transfer.bytes);
    std::memcpy(kept->bytes(), transfer.request, transfer.bytes);
    transfer.block = kept;
    transfer.request = kept->bytes();
    transfer.pin = kept;
  }
  if (path.waiting == nullptr) path.waiting = std::make_unique<WaitingRequests>(path);
  if (path.waiting->empty(level)) answer_lines[level].push_back(*path.waiting);
  path.waiting->push_back(transfer, level);
  transfer.state = State::waiting;
  ++requests_waiting;
}

void Core::stop_waiting(Path& path, IncomingTransfer& transfer) {
  const std::uint8_t level = level_of(transfer);
  path.waiting->remove(transfer, level);
  if (path.waiting->empty(level)) answer_lines[level].remove(*path.waiting);
  --requests_waiting;
}

// One request for each path in turn, as far as there is room. Handlers run in deliver(), not here.
void Core::serve_answer_line(std::uint8_t level) {
  AnswerLine& line = answer_lines[level];
  for (std::uint32_t step = 0; line.unseen != 0 && step < AnswerLine::kStep; ++step) {
    WaitingRequests* const requests = line.first();
    if (requests == nullptr || answers.is_full(level)) {
      line.unseen = 0;
      return;
    }
    line.remove(*requests);
    line.push_back(*requests);
    Path& path = requests->path();
    --line.unseen;
    if (!answers.take(level, path.accounts[level].answers)) continue;
    IncomingTransfer& transfer = requests->front(level);
    stop_waiting(path, transfer);
    if (!requests->empty(level)) ++line.unseen;
    transfer.answer_room = static_cast<std::uint32_t>(answers.largest());
    queue_delivery(transfer);
  }
  if (line.first() == nullptr) line.unseen = 0;  // otherwise the next turn goes on
}

}  // namespace weir::engine
