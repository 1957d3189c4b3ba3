// Post: one pool's place on one worker: its engine, its link, its records, and the way in from other threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "crypto/entropy.h"
#include "engine/engine.h"
#include "link/link.h"
#include "link/receive_buffer.h"
#include "pool/forwarding.h"
#include "pool/gate.h"
#include "pool/inbox.h"
#include "pool/incoming_record.h"
#include "pool/openings.h"
#include "pool/outbox.h"
#include "pool/parked_requests.h"
#include "pool/peer_entry.h"
#include "weir/config.h"
#include "weir/event.h"
#include "weir/message.h"
#include "weir/method.h"
#include "weir/task.h"
#include "worker/seat.h"
#include "worker/worker.h"

namespace weir::pool {

class Executor;
class Handshaker;

// What became of a peer's wish for a credential.
struct CredentialNews {
  std::uint32_t peer = 0;
  std::optional<Error> failure;
  engine::Credential credential;
};

// Methods of these names are the library's own.
inline bool is_reserved(std::string_view name) { return name.starts_with("weir."); }

using Admit = std::function<Result<Route>(const LargeRequest&)>;
using MakeIntake = std::function<std::unique_ptr<Intake>(const Caller&, const std::shared_ptr<Gate>&)>;
inline std::shared_ptr<Admit> shared_if_set(Admit admit) {
  return admit ? std::make_shared<Admit>(std::move(admit)) : nullptr;
}

// The function of a method that is served by tasks. Shared: a handler may outlive the post.
struct TaskHandler {
  std::string method;
  std::function<Task<Result<Reply>>(Request)> run;
};

// One served method, as one post sees it. Exactly one of the first two functions is set.
struct MethodEntry {
  Post* post = nullptr;
  std::shared_ptr<std::function<void(InlineRequest&)>> run_inline;
  std::shared_ptr<TaskHandler> run_task;
  // What takes a large request as it is opened, instead of these; and where one goes, before its data flows.
  std::shared_ptr<MakeIntake> make_intake;
  std::shared_ptr<Admit> admit;
  Pattern reply_pattern = Pattern::unary;  // of its large replies
  std::string name{};
};

// One per pool and worker. Made by the pool, then the worker's only, except where it says otherwise.
class Post final : public worker::SeatHost, public std::enable_shared_from_this<Post> {
 public:
  struct Options {
    engine::EngineConfig engine;
    std::shared_ptr<buffer::BufferPool> payloads;
    std::shared_ptr<buffer::Memory> arrivals;  // that the engine is told of
    std::shared_ptr<worker::Worker> worker;
    std::unique_ptr<link::ReceiveBufferPool> buffers;
    std::unique_ptr<link::Link> link;
    std::shared_ptr<Subscriber> subscriber;
    std::shared_ptr<Executor> executor;      // null: handlers run on the worker
    std::shared_ptr<Handshaker> handshaker;  // identity mode
    std::shared_ptr<Forwarding> forwarding;  // if others share the port
    std::uint64_t seed = 0;
    bool sends_exception_text = false;
  };

  explicit Post(Options options);
  ~Post() override;

  const std::shared_ptr<Gate>& gate() const { return gate_; }
  engine::Engine& engine() { return *engine_; }
  const Address& local() const { return local_; }
  // In a forked child, which never destroys a post of its parent.
  void close_in_child() { link_->close_in_child(); }

  // Any thread: puts the post on its worker, and takes it off. leave() completes every call with Code::closed and
  // sends the closing packets. False if the worker has no thread and its owner did not poll until then; what leave()
  // does is then done when the owner polls next, or ends.
  bool join(Instant until);
  bool leave(Instant until);
  // The same for a worker with a thread, in two steps, so that all posts leave at once. The first one keeps the post,
  // and `kept`, until it has left, which may be long after who asked for it has given up.
  void begin_to_leave(std::shared_ptr<const void> kept);
  bool has_left_by(Instant until);
  // The method whose handler runs on the worker just now. Null: none.
  const MethodEntry* running() const { return running_.load(std::memory_order_relaxed); }

  Result<void> serve(Method method, MethodEntry entry);

  // Any thread: the handshaker's answer to what this post asked for.
  void tell(CredentialNews news);

  // ---- callers on the worker's thread ----
  CallRecord* acquire() { return calls_.acquire(); }
  void submit(CallRecord* record, Instant now);
  void drop(CallRecord* record);
  void go_on(Waiting* waiting);  // as pool::go_on()
  void hand_to_lane(CallRecord* record) { outbox_.put(record); }
  // How errors name a peer; null if there is no such.
  const std::string* shown_name(std::uint32_t number) const {
    return number < shown_.size() ? shown_[number] : nullptr;
  }

  // ---- large messages on the worker's thread ----
  void open_reply(CallRecord* record, buffer::Landing* landing) {
    openings_.open_reply(record, landing, incoming_.acquire());
  }
  void run_opened(IncomingRecord* record);
  // For the executor: into its queue, or into the line in front of that.
  void queue_request(IncomingRecord* record);

  // ---- answers ----
  void reply(IncomingRecord* record, ByteSpan header, ByteSpan body) {
    engine_->reply(*record->transfer, header, body, worker_->now());
    worker_->touch(hosted_);
    IncomingRecord::Pool::release(record);
  }
  // Takes over one reference.
  void reply_large(IncomingRecord* record, ByteSpan header, buffer::Sealed* body);
  void fail(IncomingRecord* record, Code code, std::string_view sentence);
  void refuse(IncomingRecord* record, Code code, std::string_view sentence);  // no handler has seen it

  // ---- the seat ----
  bool drain(Instant now) override;
  void flush(Instant now) override;
  bool is_starved() const override { return buffers_->in_use() >= buffers_->max_buffers(); }
  void let_go() override;

  // ---- any thread ----
  Counters counters();
  bool is_quiet(Duration at_most = Duration::max());  // asks the worker, which may take that long to answer
  const std::string& limits_text() const { return limits_text_; }

 private:
  static constexpr std::size_t kUnparkedPerTurn = 256;  // requests of one line that one turn takes out of it
  static constexpr int kSweptPerTurn = 16;              // members whose parked requests one turn looks at

  static void run_inline(void* context, transfer::IncomingTransfer& transfer, Instant now);
  static void run_task(void* context, transfer::IncomingTransfer& transfer, Instant now);
  static Result<engine::Route> admit_large(void* context, const transfer::IncomingTransfer& transfer,
                                           const engine::Opening& opening);
  IncomingRecord* accept(transfer::IncomingTransfer& transfer, Instant now);
  void arrive(CallRecord* record, Instant now);
  void take_waiting();
  void accept_large(const MethodEntry& method, transfer::IncomingTransfer& transfer, Instant now);
  static void call_inline(MethodEntry& method, InlineRequest& request);
  Counters read_counters();
  void take_answers(Instant now);
  bool take_forwarded(Instant now);
  bool serve_parked(Instant now);
  bool unpark(ParkedRequests::Lines& lines, Instant now);
  static void refuse_unwanted_ahead(ParkedRequests::Lines& lines, Instant now);
  void take_news(Instant now);
  void ask_for_credentials();
  void leave_now();
  void farewell();
  static void fail_thrown(const MethodEntry& method, Responder responder, std::string_view text);
  void tell_of_waiting_replies(Instant now);
  std::uint64_t ask(std::unique_lock<std::mutex>& lock);  // the number of the question
  void answer_questions();

  crypto::SystemEntropy entropy_;
  std::shared_ptr<Subscriber> subscriber_;
  std::shared_ptr<worker::Worker> worker_;
  std::shared_ptr<Gate> gate_;
  std::unique_ptr<link::ReceiveBufferPool> buffers_;
  std::unique_ptr<link::Link> link_;
  std::shared_ptr<engine::Engine> engine_;
  std::unique_ptr<worker::Seat> seat_;
  worker::Hosted hosted_;
  CallRecord::Pool calls_;
  IncomingRecord::Pool incoming_;
  const std::shared_ptr<Executor> executor_;
  ParkedRequests parked_;
  std::vector<std::uint64_t> unparking_;  // members whose parked requests may have places
  Openings openings_;
  const std::shared_ptr<Handshaker> handshaker_;
  const std::shared_ptr<Forwarding> forwarding_;
  worker::ForwardRing* const forwarded_;   // to this post; null: nobody shares its port
  std::vector<const std::string*> shown_;  // names for errors, by the engine's number; the gate's
  std::vector<PeerEntry*> peers_;          // by the engine's number; identity mode
  std::vector<std::unique_ptr<MethodEntry>> methods_;
  Inbox inbox_;
  Outbox outbox_;
  const Address local_;
  std::string limits_text_;

  std::atomic<const MethodEntry*> running_{nullptr};  // relaxed: read by who has given up waiting for it
  std::atomic<bool> has_news_{false};
  std::mutex news_mutex_;
  std::vector<CredentialNews> news_;

  // Questions of other threads, answered in a turn.
  std::atomic<bool> is_asked_{false};
  std::mutex answer_mutex_;
  std::condition_variable answered_;
  std::uint64_t questions_ = 0, answers_ = 0;
  Counters counters_copy_;
  bool quiet_copy_ = false;
  bool has_left_ = false;
};

}  // namespace weir::pool
