// `weir perf client`: keeps a window of calls outstanding and measures.
//
// Inline: each completion submits the next call of its slot, and one loop polls. With threads: one coroutine per slot
// on this thread, and a worker thread beside it. A slot whose call failed rests, so that a server that went away ends
// the run instead of a storm of failures. Puts, gets and broadcasts are coroutines in either mode.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "apps/weir/format.h"
#include "apps/weir/perf_meter.h"
#include "apps/weir/perf_options.h"
#include "apps/weir/process.h"
#include "base/address.h"
#include "weir/bulk.h"
#include "weir/pool.h"
#include "weir/task.h"

namespace weir::command {

namespace {

// A busy loop looks at the clock this often.
constexpr int kTurnsPerLook = 16;
constexpr std::chrono::milliseconds kLongestSleep{10};
// A window of the largest messages waits for its turn.
constexpr std::chrono::seconds kLargeDeadline{60};

// A large message takes so long that reading the clock costs nothing beside it.
std::uint32_t sample_distance(const PerfClientOptions& options) {
  return options.window == 1 || options.has_large ? 1 : options.window < 64 ? 8 : 64;
}

// Servers of one family: a socket calls one only. What is no address is told when it is called.
PerfClientOptions with_family(PerfClientOptions options) {
  std::size_t v6 = 0, v4 = 0;
  for (const std::string& peer : options.peers) {
    if (const Result<Address> address = Address::parse(peer)) ++(address->is_v4() ? v4 : v6);
  }
  if (v4 > 0 && v6 > 0) fail_use("the servers must be all IPv4 or all IPv6");
  options.is_v6 = v6 > 0;
  return options;
}

Pool open(const PerfClientOptions& options, std::shared_ptr<Witness> witness) {
  Config config = to_config(options, std::move(witness));
  // A pool that listens nowhere calls by IPv4.
  if (options.is_v6) config.listen = "[::]:0";
  return value_or_fail(Pool::open(std::move(config)));
}

class PerfClient {
 public:
  explicit PerfClient(const PerfClientOptions& options)
      : options_(with_family(options)),
        witness_(std::make_shared<Witness>()),
        pool_(open(options_, witness_)),
        meter_(sample_distance(options)),
        method_(options.has_large ? kPerfLargeMethod : kPerfMethod),
        body_(options.request_bytes),
        budget_(options.count != 0 ? options.count : std::numeric_limits<std::uint64_t>::max()) {
    std::byte length[kReplyLengthBytes];
    for (std::size_t i = 0; i < kReplyLengthBytes; ++i) {
      length[i] = static_cast<std::byte>(options.reply_bytes >> (8 * i));
    }
    if (options.has_large) call_options_.deadline = kLargeDeadline;
    call_options_.max_reply = options.max_reply;
    if (body_.size() >= kReplyLengthBytes) {
      std::ranges::copy(length, body_.begin());
    } else {
      header_.assign(reinterpret_cast<const char*>(length), kReplyLengthBytes);
      call_options_.header = header_;
    }
  }

  void run() {
    measure();
    report();
  }

  void measure() {
    connect();
    schedule(now_ns());
    if (options_.mode == Mode::threads || options_.pattern != Pattern::call) {
      pool_.run(run_coroutines());
    } else {
      run_loop();
    }
    if (phase_ != Phase::over) end(now_ns(), false);
    // Everything that was called was answered; a peer that does not hear of our leaving finds out by itself.
    (void)pool_.close(std::chrono::milliseconds(500));
  }

  // Of one run of a sweep. Ends the program if calls failed or the user ended it.
  std::string line() const {
    fail_if_failed();
    return options_.json ? meter_.json(options_, witness_->datagram_bytes()) : meter_.sweep_line(options_);
  }

 private:
  enum class Phase : std::uint8_t { warm_up, measuring, over };

  void connect() {
    for (const std::string& address : options_.peers) {
      peers_.push_back(pool_.peer(address, {.name = options_.name}));
      if (auto ready = peers_.back().ready().get(); !ready) fail_at(address, ready.error());
      if (options_.pattern == Pattern::get) check_reach(peers_.back());
      if (stop_requested()) fail("interrupted before anything was measured", kInterrupted);
    }
    for (const std::string& sentence : witness_->degradations()) note(sentence);
    if (!options_.json && !options_.sweep) {
      fmt::print("{}\n", heading());
      if (options_.interval_seconds > 0) fmt::print("{}\n", PerfMeter::interval_heading(words_.many));
      std::fflush(stdout);
    }
  }

  [[noreturn]] static void fail_at(std::string_view address, const Error& error) {
    fail(fmt::format("{}: {}", name(error.code()), with_address(address, error.message())), exit_code_of(error));
  }

  // Whether the last byte of a get is there, before all the others are fetched for nothing.
  void check_reach(const Peer& peer) const {
    std::byte last[1];
    Result<GetReport> report = peer.get(kPerfPlacement, into(last), {.offset = options_.reply_bytes - 1}).get();
    if (report) return;
    if (report.error().code() != Code::invalid_argument) fail_at(peer.address(), report.error());
    fail(fmt::format("too_large: {}: it has less than the {} bytes to get; `weir perf server --largest {}` has them",
                     peer.address(), with_commas(options_.reply_bytes), options_.reply_bytes));
  }

  std::string heading() const {
    const std::string peers = counted(peers_.size(), "peer");
    const std::string bytes = in_bytes(options_.request_bytes + options_.reply_bytes);
    const std::string window = with_commas(options_.window);
    std::string what;
    switch (options_.pattern) {
      case Pattern::put:
        what = fmt::format("putting {} to {}, {} at a time", bytes, peers, window);
        break;
      case Pattern::get:
        what = fmt::format("getting {} from {}, {} at a time", bytes, peers, window);
        break;
      case Pattern::broadcast:
        what = fmt::format("broadcasting {} to {}, {} at a time", bytes, peers, window);
        break;
      case Pattern::call:
        what = fmt::format("calling {}: {} outstanding, {} B requests, {} B replies", peers, window,
                           with_commas(options_.request_bytes), with_commas(options_.reply_bytes));
        break;
    }
    return fmt::format("{}, {}", what, aes_in_use(options_.openssl));
  }

  void schedule(std::int64_t now) {
    if (options_.count != 0) {
      begin(now);
    } else {
      begin_at_ns_ = now + static_cast<std::int64_t>(options_.warm_up_seconds * 1e9);
    }
  }

  void begin(std::int64_t now) {
    phase_ = Phase::measuring;
    meter_.begin(now, totals());
    interval_ns_ = options_.interval_seconds > 0 && !options_.json
                       ? static_cast<std::int64_t>(options_.interval_seconds * 1e9)
                       : std::numeric_limits<std::int64_t>::max() / 2;
    next_line_ns_ = now + std::min(interval_ns_, std::numeric_limits<std::int64_t>::max() - now);
    if (options_.count == 0) end_at_ns_ = now + static_cast<std::int64_t>(options_.seconds * 1e9);
  }

  void end(std::int64_t now, bool is_interrupted) {
    if (phase_ == Phase::warm_up) begin(now - 1);
    phase_ = Phase::over;
    budget_ = 0;
    Counters counters = totals();
    // A rest that is too short to say something is only in the summary.
    if (next_line_ns_ - now < interval_ns_ / 2) print_line(now, counters);
    meter_.end(now, counters, is_interrupted);
  }

  void look_at_clock(std::int64_t now) {
    if (phase_ == Phase::warm_up && now >= begin_at_ns_) begin(now);
    if (phase_ != Phase::over && (now >= end_at_ns_ || stop_requested())) {
      end(now, now < end_at_ns_);
    } else if (phase_ == Phase::measuring && now >= next_line_ns_) {
      print_line(now, totals());
      next_line_ns_ += interval_ns_;
    }
  }

  void print_line(std::int64_t now, const Counters& counters) {
    if (options_.json || options_.interval_seconds <= 0) return;
    fmt::print("{}\n", meter_.close_interval(now, counters, payload_bytes(options_)));
    std::fflush(stdout);
  }

  Counters totals() const {
    Counters sum;
    for (const Counters& worker : pool_.counters()) sum += worker;
    return sum;
  }

  // Whether the slot may go on.
  bool complete(std::int64_t began_ns, const Result<Reply>& result) {
    if (!result) [[unlikely]]
      return complete_with(result.error());
    if (result->body().size() != options_.reply_bytes) [[unlikely]] {
      return complete_with(Error(Code::application, "the peer sent a reply of another size than asked for", true));
    }
    return complete(began_ns);
  }

  bool complete(std::int64_t began_ns) {
    if (phase_ != Phase::over) meter_.count_success();
    if (began_ns != 0) {
      std::int64_t now = now_ns();
      meter_.count_latency(now - began_ns);
      look_at_clock(now);
    }
    return true;
  }

  bool complete_with(const Error& error) {
    meter_.count_failure(error);
    return false;
  }

  // ---- inline ----

  void submit(const Peer* peer) {
    if (budget_ == 0) {
      --active_;
      return;
    }
    --budget_;
    std::int64_t began_ns = meter_.stamp();
    peer->unary(method_, Bytes{body_}, call_options_).then([this, peer, began_ns](Result<Reply>&& result) {
      if (complete(began_ns, result)) {
        submit(peer);
      } else {
        --active_;
      }
    });
  }

  void run_loop() {
    active_ = options_.window;
    for (std::uint32_t slot = 0; slot < options_.window; ++slot) submit(&peers_[slot % peers_.size()]);
    bool sleeps = options_.idle == Idle::adaptive;
    while (active_ != 0) {
      bool busy = false;
      for (int turn = 0; turn < kTurnsPerLook; ++turn) busy |= pool_.poll();
      if (sleeps && !busy && active_ != 0) pool_.poll_for(kLongestSleep);
      look_at_clock(now_ns());
    }
  }

  // ---- threads ----

  Task<void> keep_calling(const Peer* peer) {
    while (budget_ != 0) {
      --budget_;
      std::int64_t began_ns = meter_.stamp();
      Result<Reply> result = co_await peer->unary(method_, Bytes{body_}, call_options_);
      if (!complete(began_ns, result)) break;
    }
    end_slot();
  }

  void end_slot() {
    if (--active_ == 0 && all_done_) all_done_.resume();
  }

  // ---- bulk: what is sent is filled in and sealed anew each time, as an application does ----

  Task<Result<Payload>> make_payload() {
    Result<Buffer> buffer = co_await pool_.allocate(body_.size());
    if (!buffer) co_return std::unexpected(buffer.error());
    std::memcpy(buffer->span().data(), body_.data(), body_.size());
    co_return pool_.seal(std::move(*buffer));
  }

  // Each slot has a place of its own, as long as there are enough.
  std::uint64_t offset_of(std::uint32_t slot) const {
    const std::uint64_t bytes = options_.request_bytes + options_.reply_bytes;
    return (slot + 1) * bytes <= Limits{}.message_bytes ? slot * bytes : 0;
  }

  Task<void> keep_putting(const Peer* peer, std::uint32_t slot) {
    while (budget_ != 0) {
      --budget_;
      std::int64_t began_ns = meter_.stamp();
      Result<Payload> payload = co_await make_payload();
      if (!payload && !complete_with(payload.error())) break;
      auto put = peer->put(kPerfPlacement, *payload, {.offset = offset_of(slot)});
      Result<PutReport> report = co_await std::move(put);
      if (report ? !complete(began_ns) : !complete_with(report.error())) break;
    }
    end_slot();
  }

  Task<void> keep_getting(const Peer* peer, std::uint32_t slot) {
    std::vector<std::byte> memory(options_.reply_bytes);
    while (budget_ != 0) {
      --budget_;
      std::int64_t began_ns = meter_.stamp();
      auto get = peer->get(kPerfPlacement, into(memory), {.offset = offset_of(slot)});
      Result<GetReport> report = co_await std::move(get);
      if (report ? !complete(began_ns) : !complete_with(report.error())) break;
    }
    end_slot();
  }

  Task<void> keep_broadcasting() {
    while (budget_ != 0) {
      --budget_;
      std::int64_t began_ns = meter_.stamp();
      Result<Payload> payload = co_await make_payload();
      if (!payload && !complete_with(payload.error())) break;
      auto broadcast =
          pool_.broadcast(peers_, method_, *payload, {.deadline = kLargeDeadline, .max_reply = options_.max_reply});
      BroadcastOutcome outcome = co_await std::move(broadcast);
      if (outcome.reached() ? !complete(began_ns) : !complete_with(first_error_of(outcome))) break;
    }
    end_slot();
  }

  static Error first_error_of(const BroadcastOutcome& outcome) {
    for (const auto& result : outcome.results()) {
      if (result && !*result) return result->error();
    }
    return Error(Code::application, "a broadcast reached too few", true);
  }

  Task<void> keep_going(std::uint32_t slot) {
    const Peer* peer = &peers_[slot % peers_.size()];
    switch (options_.pattern) {
      case Pattern::put:
        return keep_putting(peer, slot);
      case Pattern::get:
        return keep_getting(peer, slot);
      case Pattern::broadcast:
        return keep_broadcasting();
      case Pattern::call:
        break;
    }
    return keep_calling(peer);
  }

  struct AllDone {
    PerfClient& client;
    bool await_ready() const noexcept { return client.active_ == 0; }
    void await_suspend(std::coroutine_handle<> waiter) const noexcept { client.all_done_ = waiter; }
    void await_resume() const noexcept {}
  };

  Task<void> run_coroutines() {
    active_ = options_.window;
    for (std::uint32_t slot = 0; slot < options_.window; ++slot) pool_.spawn(keep_going(slot));
    co_await AllDone{*this};
  }

  void report() {
    if (options_.json) {
      fmt::print("{}\n", meter_.json(options_, witness_->datagram_bytes()));
      tell_failures_as_json(false);    // the object has them
    } else if (meter_.calls() != 0) {  // otherwise there is nothing to tell but the failure
      fmt::print("{}", meter_.summary(options_));
    }
    fail_if_failed();
  }

  void fail_if_failed() const {
    if (meter_.errors() != 0) {
      fail(fmt::format("{} failed, the first with: {}", counted(meter_.errors(), words_.one),
                       meter_.first_error()->to_string()));
    }
    if (meter_.is_interrupted() && options_.count != 0) {
      fail(fmt::format("interrupted: {} of {}", with_commas(meter_.calls()), counted(options_.count, words_.one)),
           kInterrupted);
    } else if (meter_.is_interrupted()) {
      fail(fmt::format("interrupted: {:.2f} of {:g} s", meter_.seconds(), options_.seconds), kInterrupted);
    }
  }

  const PerfClientOptions options_;
  const PatternWords words_ = words_of(options_.pattern);
  std::shared_ptr<Witness> witness_;
  Pool pool_;
  std::vector<Peer> peers_;
  PerfMeter meter_;
  Method method_;
  std::vector<std::byte> body_;
  std::string header_;
  CallOptions call_options_;

  std::uint64_t budget_;      // calls that may still be made
  std::uint32_t active_ = 0;  // slots that have not ended
  Phase phase_ = Phase::warm_up;
  std::int64_t begin_at_ns_ = 0;
  std::int64_t end_at_ns_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t next_line_ns_ = 0;
  std::int64_t interval_ns_ = 0;
  std::coroutine_handle<> all_done_;
};

}  // namespace

void run_perf_client(const PerfClientOptions& options) {
  catch_stop_signals();
  PerfClient(options).run();
}

// Each run has a pool of its own, so that none finds what the one before left: windows, tokens, memory.
void run_perf_sweep(const PerfClientOptions& options) {
  catch_stop_signals();
  if (!options.json) fmt::print("{}\n", PerfMeter::sweep_heading(words_of(options.pattern).many));
  std::string all;
  for (const std::uint64_t size : options.sizes) {
    for (const std::uint32_t window : options.windows) {
      PerfClientOptions one = options;
      one.request_bytes = size;
      one.window = window;
      one.largest_bytes = std::max(one.largest_bytes, size);
      one.has_large = is_large(one);
      one.interval_seconds = 0;
      PerfClient client(one);
      client.measure();
      if (options.json) {
        all += (all.empty() ? "" : ",\n ") + client.line();
      } else {
        fmt::print("{}\n", client.line());
        std::fflush(stdout);
      }
    }
  }
  if (options.json) fmt::print("{{\"runs\": [{}]}}\n", all);
}

}  // namespace weir::command
