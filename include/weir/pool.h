// Pool: one process's seat in the network. Cheap to copy, safe to share between threads.
//
// After fork() a pool belongs to the parent alone. In the child whatever returns a result or a Call fails with `closed`
// and a sentence, poll() stops the process with that sentence, and dropping handles is quick, silent and sends nothing.
// The child may open a pool of its own.
#pragma once

#include "weir/require.h"
// The rest needs what this asks for.
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "weir/allocation.h"
#include "weir/buffer.h"
#include "weir/bulk.h"
#include "weir/call.h"
#include "weir/config.h"
#include "weir/error.h"
#include "weir/event.h"
#include "weir/message.h"
#include "weir/method.h"
#include "weir/room.h"
#include "weir/task.h"

namespace weir {

namespace detail {
class PoolState;
class PeerState;
class WorkersState;

template <class T>
struct IsTask : std::false_type {};
template <class T>
struct IsTask<Task<T>> : std::true_type {};
}  // namespace detail

// Worker threads that several pools share. With zero threads, poll() runs all of them.
class Workers {
 public:
  struct Options {
    int threads = 1;
    std::vector<WorkerPlace> places{};
    Idle idle = Idle::adaptive;
    std::chrono::nanoseconds watchdog = std::chrono::seconds(10);
    OnHang on_hang = OnHang::report;
    std::shared_ptr<Subscriber> subscriber{};
  };
  static Result<Workers> open(Options options);
  // One turn of every engine that has something to do; returns whether anything was done. Zero threads only.
  bool poll() const;
  // The same, but sleeps up to `at_most` if there is nothing to do.
  bool poll_for(std::chrono::nanoseconds at_most) const;

  explicit Workers(std::shared_ptr<detail::WorkersState> state) : state_(std::move(state)) {}
  const std::shared_ptr<detail::WorkersState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::WorkersState> state_;
};

// A peer, named by its handshake address. Cheap to copy, safe to share. Connects on first use.
class Peer {
 public:
  // The body may have up to Limits::message_bytes. What is larger than Limits::inline_bytes, header included, is sealed
  // here, by this thread, into memory of the pool's buffers; `overloaded` if there is none left.
  Call unary(Method method, Bytes body, const CallOptions& options = {}) const;
  Call unary(Method method, std::string_view body, const CallOptions& options = {}) const {
    return unary(method, as_bytes(body), options);
  }
  // A payload that was sealed before, perhaps for many: nothing is copied or sealed again. Move the last handle in to
  // have its memory back as it arrives (see Payload).
  Call unary(Method method, Payload payload, const CallOptions& options = {}) const;
  // Writes a payload into what the peer placed under this name: memory or a file. Of any size: it goes in parts, so the
  // peer needs no memory for all of it.
  Bulk<Result<PutReport>> put(std::string_view name, Payload payload, const PutOptions& options = {}) const;
  // Reads from it into memory or a file of this side's: `get("shard-7", weir::into(span), {.offset = 4096})`. A get
  // that ends beyond what is there fails, with all that is there acknowledged.
  Bulk<Result<GetReport>> get(std::string_view name, const GetTarget& target, const GetOptions& options = {}) const;
  // Room for one more call to this peer: `co_await` it or get() it, for a Result<CallRoom>, and keep that until the
  // call has completed. As many are out at a time as Limits::queued_calls, for all peers of a worker together. Suspends
  // while there is none; the most urgent go on first. Inside handlers there always is. `closed` when the pool closes.
  RoomRequest room(const RoomOptions& options = {}) const;
  // Completes when the peer is connected (an empty reply) or cannot be reached.
  Call ready(const CallOptions& options = {}) const;
  std::string_view address() const;

  explicit Peer(std::shared_ptr<detail::PeerState> state) : state_(std::move(state)) {}
  const std::shared_ptr<detail::PeerState>& state() const { return state_; }  // for the library

 private:
  std::shared_ptr<detail::PeerState> state_;
};

class Pool {
 public:
  static Result<Pool> open(Config config);

  // The peer at this address ("10.0.0.7:4433"). An address that cannot be parsed gives calls that fail saying so.
  // With an identity, its certificate must prove that address, or the name given here.
  Peer peer(std::string_view address, const PeerOptions& options = {}) const;

  // Serves `method` with a function `Request -> Task<Reply> | Task<Result<Reply>> | Reply | Result<Reply>`. It runs on
  // the executor; with zero worker threads, inside poll(). It may await calls to other peers.
  template <class F>
  Result<void> serve(Method method, F function, const ServeOptions& options = {}) {
    auto run = [function = std::move(function)](Request request) -> Task<Result<Reply>> {
      using Answer = std::invoke_result_t<const F&, Request>;
      if constexpr (detail::IsTask<Answer>::value) {
        co_return co_await function(std::move(request));
      } else {
        co_return function(std::move(request));
      }
    };
    return serve_task(method, std::move(run), options);
  }
  // Serves `method` with a function `void(InlineRequest&)`, run to completion on the worker thread.
  Result<void> serve_inline(Method method, std::function<void(InlineRequest&)> function,
                            const ServeOptions& options = {});

  // Zero worker threads: one turn of the loop; handlers and continuations run in here. Returns whether anything was
  // done. The first thread that calls it owns the loop until it ends; get() and run() of other threads wait for it
  // then. While there is no owner, they turn the loop themselves.
  bool poll() const;
  bool poll_for(std::chrono::nanoseconds at_most) const;

  // Runs a coroutine on this thread until it is done, resuming whatever this thread awaits meanwhile.
  template <class T>
  T run(Task<T> task) const {
    run_until_done(task);
    return task.take();
  }
  // Starts a coroutine on this thread without waiting for it; some later run(), get() or poll() here resumes it.
  void spawn(Task<void> task) const;

  // Memory to fill and seal, of Limits::buffer_bytes: `co_await` it or get() it, for a Result<Buffer>. Suspends while
  // the pool's buffers are used up; first come, first served. Dropping it gives up the wait.
  Allocation allocate(std::size_t bytes, const AllocateOptions& options = {}) const;
  // On this thread, in place. Something was written into the buffer (CHECKed).
  Payload seal(Buffer&& buffer) const;
  // The application sealed it itself: it is sent as it is, and opened by the application at the other end.
  Payload adopt(Buffer&& buffer, const Binding& binding) const;

  // Lets peers put into and get from memory or a file, under a name.
  Result<void> place(std::string_view name, Placement placement);
  // Takes it away. Waits for the record that is being written or read just now; puts and gets that are under way fail.
  // Once it has returned, the memory is the application's alone again, and no guard or tee of it runs. Waits for those,
  // too: they cannot call it.
  Result<void> unplace(std::string_view name);

  // One payload to many, sealed once: a unary call to each. Await it, or get() it. It completes when as many have
  // replied as the quorum is, or so many have failed that it cannot be reached. Dropping it cancels what is
  // outstanding. Move the payload in to have its memory back as soon as every live peer has it (see Payload).
  Bulk<BroadcastOutcome> broadcast(std::span<const Peer> peers, Method method, Payload payload,
                                   const BroadcastOptions& options = {}) const;

  // Stops taking calls, waits until the outstanding ones and the running handlers are done or `deadline` passed, tells
  // the peers (who fail the rest at once), and stops. Errors: what was cut off; handlers that block are named, and
  // continue until they return. Dropping the last handle waits 200 ms for calls and 5 s for handlers. With zero
  // worker threads, if the thread that owns the loop does not poll, the pool ends when it does, or when that thread
  // ends; the error says so.
  Result<void> close(std::chrono::nanoseconds deadline = std::chrono::seconds(5)) const;

  // "127.0.0.1:4433": where this pool listens; with `.listen = "...:0"`, the port that it got.
  std::string listen_address() const;
  std::vector<Counters> counters() const;  // one per worker
  std::string limits() const;              // every bound in force, readable

 private:
  explicit Pool(std::shared_ptr<detail::PoolState> state) : state_(std::move(state)) {}
  Result<void> serve_task(Method method, std::function<Task<Result<Reply>>(Request)> function,
                          const ServeOptions& options);
  void run_until_done(detail::TaskBase& task) const;

  std::shared_ptr<detail::PoolState> state_;
};

}  // namespace weir
