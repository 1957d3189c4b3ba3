// Raw bulk and broadcast: bytes straight into a peer's memory or file and back, and one payload to many.
//
//   pool.place("shard-7", weir::Placement::memory(span));
//   co_await db.put("shard-7", payload, {.offset = 4096});
//   co_await db.get("shard-7", weir::into(local_span), {.offset = 4096});
//   auto outcome = co_await pool.broadcast(replicas, "append", payload, {.quorum = 2});
//
// Option structs are trivially destructible on purpose: see CallOptions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/after.h"
#include "weir/body.h"
#include "weir/error.h"
#include "weir/message.h"
#include "weir/task.h"

namespace weir {

namespace worker {
class Worker;
}

namespace detail {
// Starts the task and drives this thread until it is done; turns `loop` meanwhile, if there is one.
void run_here(TaskBase& task, const std::shared_ptr<worker::Worker>& loop);
}  // namespace detail

// ---- where bytes may be put, and got from ---------------------------------------------------------------------------

enum class Access : std::uint8_t {
  both,
  get_only,
  put_only,
};

struct FileOptions {
  Access access = Access::both;
  bool create = false;                     // if there is no such file; what is put to must be readable, too
  std::uint64_t limit_bytes = 1ull << 62;  // no put goes beyond; the file itself grows as it is written
};

// What a peer asks of a placement.
struct BulkRequest {
  std::string_view name{};
  Bytes header{};  // what the peer's options said
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool is_put = false;
  Caller caller{};  // who asks; valid until the guard returns
};

// Memory or a file that peers may put into or get from, under a name. See Pool::place().
//
// A put becomes visible record by record (up to 60 KiB), each one only after it was verified as a whole; what comes
// over the wire is never visible before. A get that runs at the same time sees some records old and some new, and in
// what it reads at once (2 MiB, or as its parts are) none in part. A record that a full disk does not take as a whole
// is taken back: what a record replaces in a file is read first, and then written again. Only a disk that refuses this
// too, or a process or machine that ends in the middle of it, leaves part of a record.
//
// Two puts to the same place at the same time: each record is the one's or the other's, in the file and in a cache the
// same. Of a put that succeeded, or that the peer answered with an error, nothing is under way any more. One that was
// dropped, timed out or lost its peer may still write whole records of its own at the other end, also after a later put
// to the same place was acknowledged. To go on with the same bytes does not mind; who puts other bytes there does so
// under another name.
class Placement {
 public:
  // The memory stays until it is taken away with Pool::unplace(), or the pool is closed. Who else reads or writes there
  // meanwhile, and does not know that a put is complete, sees bytes in any state.
  static Placement memory(std::span<std::byte> bytes, Access access = Access::both);
  static Placement constant(Bytes bytes);  // memory to get from
  // Opened when it is placed. Parts of it that were never written read as zeros; beyond its end there is nothing.
  static Placement file(std::string_view path, const FileOptions& options = {});

  // Whatever is put goes there too, record by record, after it was written: into a cache (what lies beyond its end is
  // left out), or to a function, which is called by threads of the executor, several at a time, and in any order where
  // two puts write the same record at the same time; it cannot unplace() what it belongs to.
  Placement tee(std::span<std::byte> cache) &&;
  Placement tee(std::function<void(std::uint64_t offset, Bytes text)> function) &&;
  // Asked before each put or get and again for every part of it, by threads of the executor; its error is the peer's.
  // It cannot unplace() what it belongs to. Once unplace() has returned, neither it nor a tee runs any more.
  Placement guard(std::function<Result<void>(const BulkRequest&)> function) &&;

  // For the library.
  struct Parts {
    std::span<std::byte> memory{};
    std::string path;  // of a file; empty: memory
    FileOptions file;
    Access access = Access::both;
    std::span<std::byte> cache;
    std::function<void(std::uint64_t, Bytes)> tee;
    std::function<Result<void>(const BulkRequest&)> guard;
  };
  Parts release() && { return std::move(parts_); }

 private:
  Placement() = default;
  Parts parts_;
};

// ---- put and get ----------------------------------------------------------------------------------------------------

// Called whenever more bytes are acknowledged, by the thread that awaits.
struct Progress {
  void (*function)(void* context, std::uint64_t acknowledged_bytes, std::uint64_t of_bytes) = nullptr;
  void* context = nullptr;
};

struct PutReport {
  // From the payload's start: verified and written, and on the disk if the options said `.sync`. Always whole records.
  // After a failure, bytes beyond these are old ones or whole verified records; nothing else (see Placement for disks).
  std::uint64_t acknowledged_bytes = 0;
};

struct PutOptions {
  std::uint64_t offset = 0;              // in the placement, of the payload's first byte
  std::uint64_t resume_at = 0;           // the payload's bytes that are there already: acknowledged_bytes of a report
  int priority = 3;                      // 0 (most urgent) to 7
  std::chrono::nanoseconds deadline{0};  // of all of it; 0: none, but each part has Timeouts::default_deadline
  std::string_view header{};             // for the placement's guard(); at most 512 bytes
  Progress progress{};
  bool sync = false;            // acknowledged means on the disk
  PutReport* report = nullptr;  // kept up to date, so that a failure says where to go on
};

struct GetReport {
  std::uint64_t acknowledged_bytes = 0;  // verified, and in place; from the beginning of what was asked for
};

struct GetOptions {
  std::uint64_t offset = 0;              // in the placement
  std::uint64_t bytes = 0;               // 0: as many as the target has room for; into a file: all that there are
  std::uint64_t resume_at = 0;           // of these, the bytes that are here already
  int priority = 3;                      // 0 (most urgent) to 7
  std::chrono::nanoseconds deadline{0};  // of all of it; 0: none, but each part has Timeouts::default_deadline
  std::string_view header{};             // for the placement's guard(); at most 512 bytes
  Progress progress{};
  GetReport* report = nullptr;  // kept up to date, so that a failure says where to go on
};

// Where a get goes. After a failure the memory beyond the acknowledged bytes is unspecified.
struct GetTarget {
  std::span<std::byte> memory{};
  std::string_view path{};  // a file; empty: memory
  std::uint64_t offset = 0;
};
inline GetTarget into(std::span<std::byte> memory) { return {.memory = memory}; }
// Created if there is none; written from `offset` on, and not shortened. Opened and written by the thread that awaits
// the get, part by part: where a coroutine must not wait for a disk, as on a worker, it is awaited elsewhere.
inline GetTarget into_file(std::string_view path, std::uint64_t offset = 0) {
  return {.memory = {}, .path = path, .offset = offset};
}

// Await it, or get() it on a plain thread. Nothing is sent before that. Dropping it cancels what is under way.
template <class T>
class [[nodiscard]] Bulk : public Task<T> {
 public:
  // Not allowed inside handlers and continuations on a worker (detected).
  T get() {
    detail::run_here(*this, loop_);
    return this->take();
  }

  // For the library.
  Bulk(Task<T> task, std::shared_ptr<worker::Worker> loop) : Task<T>(std::move(task)), loop_(std::move(loop)) {}

 private:
  std::shared_ptr<worker::Worker> loop_;
};

// ---- broadcast ------------------------------------------------------------------------------------------------------

enum class Stragglers : std::uint8_t {
  finish,  // what is outstanding when the broadcast completes goes on in the background
  cancel,
};

// Told of each peer that ends after the broadcast completed; on a worker's thread, or inside poll(). Like every
// continuation it must not block. The context outlives the broadcast's deadline, or the pool.
struct StragglerReport {
  void (*function)(void* context, std::size_t peer, const Result<Reply>& result) = nullptr;
  void* context = nullptr;
};

struct BroadcastOptions {
  std::size_t quorum = 0;  // how many replies complete it; 0: all; more than there are peers: invalid_argument
  Stragglers stragglers = Stragglers::finish;
  int priority = 3;                      // 0 (most urgent) to 7
  std::chrono::nanoseconds deadline{0};  // of each call; 0: Timeouts::default_deadline
  std::string_view header{};
  std::uint64_t max_reply = 0;  // of each peer: CallOptions::max_reply
  StragglerReport report{};
  After after{};  // what each of the calls comes after
};

// What had become of every peer when the broadcast completed.
class [[nodiscard]] BroadcastOutcome {
 public:
  using Results = std::vector<std::optional<Result<Reply>>>;

  BroadcastOutcome(Results results, std::size_t quorum);
  BroadcastOutcome(std::size_t peers, const Error& refusal);  // nothing was sent

  // As many replied as the quorum is; all of none, too. False: so many failed that it could not be reached any more, or
  // nothing was sent; error() says why.
  bool reached() const { return replies_ >= quorum_; }
  // Nothing if it was reached. Otherwise what was wrong with the broadcast itself (then every peer's result says the
  // same), or the error of the first peer that failed.
  std::optional<Error> error() const;
  std::size_t replies() const { return replies_; }
  // In the order of the peers. Empty: a straggler.
  std::size_t size() const { return results_.size(); }
  const std::optional<Result<Reply>>& operator[](std::size_t peer) const { return results_[peer]; }
  const Results& results() const { return results_; }

 private:
  Results results_;
  std::size_t quorum_;
  std::size_t replies_ = 0;
  std::optional<Error> refusal_;
};

}  // namespace weir
