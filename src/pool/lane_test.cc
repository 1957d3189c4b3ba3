// Lane: who waits for a call is handed its record by threads that know the waiter by its lane only.
#include "pool/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "pool/call.h"
#include "pool/gate.h"
#include "worker/worker.h"

namespace weir::pool {
namespace {

// A record as Peer::unary() makes one on a thread that turns no loop.
CallRecord* make_record(Port& port, const std::string& peer) {
  CallRecord* record = port.acquire();
  record->complete = &complete_for_lane;
  record->block = nullptr;
  record->state = CallRecord::State::idle;
  record->peer_shown = &peer;
  record->stage.store(detail::CallStage::pending, std::memory_order_relaxed);
  record->waiter_kind = detail::WaiterKind::none;
  record->is_dropped = false;
  record->has_ties = false;
  return record;
}

// The gate's close() hands the record to the waiting thread and then wakes that thread. The thread looks for the record
// by itself before it sleeps, so it may take the record, return from get() and end, with its lane, in between. The
// thread sanitizer reports a lane that is not owned meanwhile; the address sanitizer does if the thread is that quick.
TEST(Lane, AThreadMayEndAsSoonAsItHasTheCallThatACloseRefused) {
  const std::string peer = "peer";
  for (int round = 0; round < 200; ++round) {
    // With a thread that is never started: nobody but close() completes the call.
    auto worker = std::make_shared<worker::Worker>(worker::Worker::Options{.has_thread = true});
    auto gate = std::make_shared<Gate>(worker, Limits{}, nullptr);
    std::atomic<CallRecord*> submitted{nullptr};
    std::thread waiter([&] {
      Lane& lane = Lane::mine();
      Port* const port = lane.port_to(gate);
      CallRecord* const record = make_record(*port, peer);
      lane.submit(*port, record);
      submitted.store(record, std::memory_order_release);  // with what the record was made of
      const Result<Reply> result = detail::call_wait(record);
      EXPECT_EQ(result.error().code(), Code::closed);
    });
    while (submitted.load(std::memory_order_acquire) == nullptr) std::this_thread::yield();
    // A thread that waits already is handed the record.
    const std::atomic<detail::CallStage>& stage = submitted.load(std::memory_order_relaxed)->stage;
    while (stage.load(std::memory_order_relaxed) != detail::CallStage::claimed) std::this_thread::yield();
    gate->close();
    waiter.join();
  }
}

}  // namespace
}  // namespace weir::pool
