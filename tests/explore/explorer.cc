#include "tests/explore/explorer.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <unordered_map>

#include "tests/explore/explorer_state.h"

namespace weir::explore {

Explorer* running = nullptr;
std::uint64_t runs = 0;

bool Seen::check_and_add(std::uint64_t key, std::uint8_t left) {
  key |= key == 0;
  if (used_ * 2 >= table_.size()) grow();
  std::size_t at = key & (table_.size() - 1);
  while (table_[at].key != 0 && table_[at].key != key) at = (at + 1) & (table_.size() - 1);
  Entry& entry = table_[at];
  if (entry.key == key && entry.left >= left) return true;
  used_ += entry.key == 0;
  entry = {key, left};
  return false;
}

void Seen::grow() {
  std::vector<Entry> old(table_.size() * 2);
  old.swap(table_);
  for (const Entry& entry : old) {
    if (entry.key == 0) continue;
    std::size_t at = entry.key & (table_.size() - 1);
    while (table_[at].key != 0) at = (at + 1) & (table_.size() - 1);
    table_[at] = entry;
  }
}

Explorer::Explorer(const Options& options, const std::function<void(Scene&)>& scenario)
    : options_(options), scenario_(scenario) {}

// ---- one run -------------------------------------------------------------------------------------------------------

void Explorer::prepare() {
  memory.reset();
  arena::reset();
  sequential_order = Location{};
  fences = {};
  for (Thread& thread : threads_) {
    thread.status = Thread::Status::unused;
    thread.is_timed = thread.is_timed_out = thread.has_yielded = false;
    thread.blocked_on = nullptr;
    thread.knows = thread.to_acquire = thread.to_release = {};
    thread.hash = 0;
    thread.clock_reads = 0;
    thread.ends.clear();
  }
  preemptions_ = stale_reads_ = 0;
  steps_ = sequential_ = 0;
  depth_ = 0;
  wanted_at_ = 0;
  outcome_ = Outcome::running;
  trace_.clear();
  ++runs;
}

void Explorer::run_once() {
  prepare();
  current_ = 0;
  thread_count_ = 1;
  threads_[0].status = Thread::Status::ready;
  threads_[0].knows.happened.times[0] = threads_[0].knows.seen.times[0] = 1;
  threads_[0].fiber.start(&Explorer::main_thread, this);
  running = this;
  threads_[0].fiber.resume(&controller_);
  running = nullptr;
  arena::turn(false);
  report_.operations = std::max<std::uint64_t>(report_.operations, steps_);
}

void Explorer::end_run(Outcome outcome) {
  arena::turn(false);
  outcome_ = outcome;
  controller_.resume(nullptr);
  std::abort();
}

void Explorer::fail(const std::string& sentence) {
  arena::turn(false);
  failure_ = sentence;
  end_run(Outcome::failed);
}

void Explorer::main_thread(void* self) {
  auto& explorer = *static_cast<Explorer*>(self);
  try {
    arena::turn(true);
    {
      Scene run;
      explorer.scenario_(run);
      {
        const arena::Off off;
        if (run.threads_.size() >= kMaxThreads) explorer.fail("a scenario has too many threads");
        for (auto& body : run.threads_) {
          Thread& thread = explorer.threads_[explorer.thread_count_++];
          thread.body = &body;
          thread.status = Thread::Status::ready;
          thread.knows = explorer.threads_[0].knows;
          thread.knows.happened.times[explorer.thread_count_ - 1] = 1;
          thread.knows.seen.times[explorer.thread_count_ - 1] = 1;
          thread.fiber.start(&Explorer::thread_main, self);
        }
        auto& mine = explorer.threads_[0];
        ++mine.knows.happened.times[0];
        ++mine.knows.seen.times[0];
        if (explorer.thread_count_ > 1) explorer.block(self, false);
        for (std::size_t i = 1; i < explorer.thread_count_; ++i) mine.knows.join(explorer.threads_[i].knows);
      }
      for (auto& body : run.ends_) body();
    }
    while (!explorer.threads_[0].ends.empty()) {
      const auto [function, argument] = explorer.threads_[0].ends.back();
      explorer.threads_[0].ends.pop_back();
      function(argument);
    }
    arena::turn(false);
    if (explorer.options_.expects_no_leak && arena::live() != 0) {
      explorer.fail(std::to_string(arena::live()) + " blocks of memory are lost, the first of " +
                    std::to_string(arena::bytes_of_first_live()) + " bytes");
    }
  } catch (const std::exception& thrown) {
    explorer.fail(std::string("the scenario throws: ") + thrown.what());
  }
  explorer.end_run(Outcome::finished);
}

void Explorer::thread_main(void* self) {
  auto& explorer = *static_cast<Explorer*>(self);
  Thread& thread = explorer.me();
  try {
    arena::turn(true);
    (*thread.body)();
    while (!thread.ends.empty()) {
      const auto [function, argument] = thread.ends.back();
      thread.ends.pop_back();
      function(argument);
    }
    arena::turn(false);
  } catch (const std::exception& thrown) {
    explorer.fail(std::string("a thread throws: ") + thrown.what());
  }
  explorer.finish_thread();
}

void Explorer::finish_thread() {
  me().status = Thread::Status::finished;
  me().hash = mix(me().hash, 0xe4d);
  const bool are_all = std::all_of(threads_.begin() + 1, threads_.begin() + static_cast<std::ptrdiff_t>(thread_count_),
                                   [](const Thread& each) { return each.status == Thread::Status::finished; });
  if (are_all) threads_[0].status = Thread::Status::ready;
  current_ = pick(false, true);
  threads_[current_].fiber.resume(nullptr);
}

// ---- choices -------------------------------------------------------------------------------------------------------

std::uint64_t Explorer::random_below(std::uint64_t limit) {
  random_ += 0x9e3779b97f4a7c15;
  return mix(random_, 0x5eed) % limit;
}

std::size_t Explorer::choose(std::size_t count, std::size_t allowed, bool is_thread) {
  const std::size_t index = depth_++;
  if (mode_ == Mode::replay) {
    if (wanted_at_ == wanted_.size() || wanted_[wanted_at_].first != index) return 0;
    return std::min<std::size_t>(wanted_[wanted_at_++].second, count - 1);
  }
  if (index < path_.size() && mode_ == Mode::all) return path_[index].chosen;
  if (path_.size() == index) path_.emplace_back();
  Choice& choice = path_[index];
  choice = {.chosen = 0, .allowed = static_cast<std::uint8_t>(allowed)};
  if (mode_ == Mode::random) {
    if (allowed > 1 && random_below(is_thread ? switch_chance_ : 6) == 0) {
      choice.chosen = static_cast<std::uint8_t>(random_below(allowed));
    }
    return choice.chosen;
  }
  if (is_thread) {
    const auto left = static_cast<std::uint8_t>(options_.preemptions - preemptions_);
    if (seen_.check_and_add(state_hash(), left)) {
      path_.pop_back();
      --depth_;
      end_run(Outcome::equivalent);
    }
  }
  return 0;
}

std::uint64_t Explorer::state_hash() const {
  std::uint64_t hash = current_;
  for (std::size_t i = 0; i < thread_count_; ++i) {
    const Thread& thread = threads_[i];
    hash = mix(hash, thread.hash);
    hash = mix(hash, static_cast<std::uint64_t>(thread.status) * 2 + (thread.has_yielded ? 1 : 0));
  }
  return hash;
}

std::size_t Explorer::choose_value(std::size_t count) {
  if (count < 2) return 0;
  const bool may = stale_reads_ < options_.stale_reads;
  const std::size_t chosen = choose(count, may ? count : 1, false);
  if (chosen != 0) ++stale_reads_;
  return chosen;
}

std::size_t Explorer::pick(bool can_stay, bool is_free) {
  std::array<std::uint8_t, kMaxThreads> options{};
  std::size_t count = 0;
  for (int round = 0; round < 2 && count == 0; ++round) {
    if (can_stay) options[count++] = static_cast<std::uint8_t>(current_);
    for (std::size_t i = 0; i < thread_count_; ++i) {
      if (i == current_ || threads_[i].status != Thread::Status::ready || threads_[i].has_yielded) continue;
      options[count++] = static_cast<std::uint8_t>(i);
    }
    if (count != 0) break;
    // Everybody who could go on has yielded: once more, the current one last.
    for (Thread& thread : threads_) thread.has_yielded = false;
    if (round == 1 && me().status == Thread::Status::ready) options[count++] = static_cast<std::uint8_t>(current_);
  }
  bool is_over_time = false;
  if (count == 0) {
    for (std::size_t i = 0; i < thread_count_; ++i) {
      if (threads_[i].status == Thread::Status::blocked && threads_[i].is_timed) {
        options[count++] = static_cast<std::uint8_t>(i);
      }
    }
    is_over_time = count != 0;
    is_free = true;
  }
  if (count == 0) {
    std::string who;
    for (std::size_t i = 1; i < thread_count_; ++i) {
      if (threads_[i].status == Thread::Status::blocked) who += " T" + std::to_string(i);
    }
    fail("every thread that is left sleeps for ever:" + who);
  }
  std::size_t next = options[0];
  if (count > 1) {
    const bool costs = can_stay && !is_free;
    const std::size_t allowed = costs && preemptions_ >= options_.preemptions && mode_ == Mode::all ? 1 : count;
    const std::size_t chosen = choose(count, allowed, true);
    if (costs && chosen != 0) ++preemptions_;
    next = options[chosen];
  }
  if (is_over_time) {
    threads_[next].status = Thread::Status::ready;
    threads_[next].is_timed_out = true;
    threads_[next].hash = mix(threads_[next].hash, 0x71e);
  }
  return next;
}

void Explorer::switch_to(std::size_t next) {
  if (next == current_) return;
  Thread& from = me();
  current_ = next;
  threads_[next].fiber.resume(&from.fiber);
}

void Explorer::point() {
  if (++steps_ > options_.max_steps) fail("the run does not end: threads wait for each other without sleeping");
  if (thread_count_ == 1 || current_ == 0) return;
  switch_to(pick(true, false));
  me().has_yielded = false;
}

void Explorer::yield() {
  if (++steps_ > options_.max_steps) fail("the run does not end: threads wait for each other without sleeping");
  if (thread_count_ == 1 || current_ == 0) return;
  me().hash = mix(me().hash, 0x41e1d);
  me().has_yielded = true;
  switch_to(pick(false, true));
}

bool Explorer::block(const void* on, bool is_timed) {
  Thread& thread = me();
  thread.status = Thread::Status::blocked;
  thread.blocked_on = on;
  thread.is_timed = is_timed;
  thread.is_timed_out = false;
  switch_to(pick(false, true));
  thread.blocked_on = nullptr;
  return !thread.is_timed_out;
}

std::size_t Explorer::wake_all(const void* on) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < thread_count_; ++i) {
    if (threads_[i].status != Thread::Status::blocked || threads_[i].blocked_on != on) continue;
    threads_[i].status = Thread::Status::ready;
    ++count;
  }
  return count;
}

bool Explorer::wake_one(const void* on) {
  std::array<std::size_t, kMaxThreads> waiting{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < thread_count_; ++i) {
    if (threads_[i].status == Thread::Status::blocked && threads_[i].blocked_on == on) waiting[count++] = i;
  }
  if (count == 0) return false;
  const std::size_t chosen = count == 1 ? 0 : choose(count, count, false);
  threads_[waiting[chosen]].status = Thread::Status::ready;
  return true;
}

// ---- what is known of a run ----------------------------------------------------------------------------------------

void Explorer::note_event(Location& location, std::uint64_t what, bool is_write) {
  Thread& thread = me();
  thread.hash = mix(mix(thread.hash, what), mix(location.address, location.last_write));
  if (is_write) {
    thread.hash = mix(thread.hash, location.reads);
    location.last_write = thread.hash;
    location.reads = 0;
    // Who has yielded waits for something to change, and something has.
    if (&location == &sequential_order) return;
    for (std::size_t i = 0; i < thread_count_; ++i) threads_[i].has_yielded = false;
  } else {
    location.reads += mix(thread.hash, 0x4ead);
  }
}

const Fault* Explorer::fault_at(const Where& where, Operation operation, bool only_of_kind, Fault::Kind kind) {
  if (options_.faults.empty()) return nullptr;
  const std::size_t length = std::strlen(where.file_name());
  for (const Fault& fault : options_.faults) {
    if (fault.operation != operation || (only_of_kind && fault.kind != kind)) continue;
    const std::size_t end = std::strlen(fault.file);
    if (end > length || std::strcmp(where.file_name() + length - end, fault.file) != 0) continue;
    if (std::strstr(where.function_name(), fault.function) == nullptr) continue;
    ++report_.faults_hit;
    me().hash = mix(me().hash, 0xfa017);  // an operation that is left out is a step, too
    return &fault;
  }
  return nullptr;
}

namespace {

const char* name_of(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed:
      return "relaxed";
    case std::memory_order_consume:
    case std::memory_order_acquire:
      return "acquire";
    case std::memory_order_release:
      return "release";
    case std::memory_order_acq_rel:
      return "acq_rel";
    case std::memory_order_seq_cst:
      return "seq_cst";
  }
  return "";
}

// "pool::Lane::deliver" of the whole signature.
std::string short_name(const char* signature) {
  std::string name = signature;
  int depth = 0;
  std::size_t end = name.size(), begin = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<';
    depth -= name[i] == '>' && (i == 0 || name[i - 1] != '-');
    if (depth == 0 && name[i] == ' ') begin = i + 1;
    if (depth == 0 && name[i] == '(') {
      end = i;
      break;
    }
  }
  name = name.substr(begin, end - begin);
  for (const char* prefix : {"weir::explore::", "weir::"}) {
    if (name.starts_with(prefix)) name.erase(0, std::strlen(prefix));
  }
  return name;
}

std::string short_file(const char* path) {
  const char* file = std::strrchr(path, '/');
  return file == nullptr ? path : file + 1;
}

}  // namespace

void Explorer::trace(const char* what, const Location* location, std::memory_order order, std::uint64_t value,
                     const Where& where) {
  if (!is_tracing_) return;
  char line[512];
  std::snprintf(line, sizeof line, "  %3u T%zu  %-9s %-8s #%-3u %-18llx %s:%u %s\n", steps_, current_, what,
                name_of(order), location == nullptr ? 0 : location->number, static_cast<unsigned long long>(value),
                short_file(where.file_name()).c_str(), static_cast<unsigned>(where.line()),
                short_name(where.function_name()).c_str());
  trace_ += line;
}

// ---- the search ----------------------------------------------------------------------------------------------------

bool Explorer::next_path() {
  path_.resize(std::min(depth_, path_.size()));
  while (!path_.empty() && path_.back().chosen + 1 >= path_.back().allowed) path_.pop_back();
  if (path_.empty()) return false;
  ++path_.back().chosen;
  return true;
}

std::string Explorer::schedule() const {
  std::string text;
  for (std::size_t i = 0; i < std::min(depth_, path_.size()); ++i) {
    if (path_[i].chosen == 0) continue;
    if (!text.empty()) text += ',';
    text += std::to_string(i) + ':' + std::to_string(path_[i].chosen);
  }
  return text.empty() ? "-" : text;
}

void Explorer::read_schedule(const std::string& text) {
  wanted_.clear();
  const char* at = text.c_str();
  while (*at != '\0' && *at != '-') {
    char* end = nullptr;
    const std::size_t index = std::strtoull(at, &end, 10);
    if (end == at || *end != ':') break;
    wanted_.emplace_back(index, static_cast<std::uint8_t>(std::strtoul(end + 1, &end, 10)));
    at = *end == ',' ? end + 1 : end;
  }
}

Report Explorer::explore() {
  const auto begin = std::chrono::steady_clock::now();
  mode_ = !options_.replay.empty() ? Mode::replay : options_.random_schedules != 0 ? Mode::random : Mode::all;
  if (mode_ == Mode::replay) read_schedule(options_.replay);
  is_tracing_ = mode_ == Mode::replay;
  for (;;) {
    if (mode_ == Mode::random) {
      random_ = mix(options_.seed + report_.schedules, 0xd1ce);
      switch_chance_ = std::uint64_t{1} << (1 + random_below(4));
    }
    run_once();
    ++(outcome_ == Outcome::equivalent ? report_.equivalent : report_.schedules);
    if (outcome_ == Outcome::failed || mode_ == Mode::replay) break;
    if (report_.schedules >= (mode_ == Mode::random ? options_.random_schedules : options_.max_schedules)) break;
    if (mode_ == Mode::random) continue;
    if (!next_path()) {
      report_.is_complete = true;
      break;
    }
  }
  if (outcome_ == Outcome::failed) {
    report_.has_failed = true;
    report_.failure = failure_;
    report_.schedule = mode_ == Mode::replay ? options_.replay : schedule();
    if (mode_ != Mode::replay) {  // once more, to see what it does
      read_schedule(report_.schedule);
      mode_ = Mode::replay;
      is_tracing_ = true;
      run_once();
      if (outcome_ != Outcome::failed || failure_ != report_.failure) {
        report_.failure += " (and a replay of the schedule does something else: the scenario is not deterministic)";
      }
    }
  }
  report_.trace = trace_;
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(report_);
}

std::string Report::summary() const {
  char line[256];
  std::snprintf(line, sizeof line, "%llu schedules, %llu equivalent, %llu operations at most, %.2f s: %s",
                static_cast<unsigned long long>(schedules), static_cast<unsigned long long>(equivalent),
                static_cast<unsigned long long>(operations), seconds,
                has_failed    ? "FAILED"
                : is_complete ? "all within the bounds"
                              : "not all");
  return line;
}

namespace {

// A defect may lead to an invalid address. That ends the run like any other failure.
class CatchBadAddresses {
 public:
  CatchBadAddresses() {
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = sizeof memory_;
    sigaltstack(&stack, &stack_before_);
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (running == nullptr) std::abort();
      running->fail("memory is used at an invalid address");
    };
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_);
  }
  CatchBadAddresses(const CatchBadAddresses&) = delete;
  CatchBadAddresses& operator=(const CatchBadAddresses&) = delete;
  ~CatchBadAddresses() {
    sigaction(SIGSEGV, &before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }

 private:
  char memory_[64 * 1024];
  stack_t stack_before_{};
  struct sigaction before_ {};
};

}  // namespace

Report explore(const Options& options, const std::function<void(Scene&)>& scenario) {
  Options chosen = options;
  const char* const wanted = std::getenv("WEIR_EXPLORE_SCHEDULE");
  if (wanted != nullptr) chosen.replay = wanted;
  const auto bad_addresses = std::make_unique<CatchBadAddresses>();
  auto explorer = std::make_unique<Explorer>(chosen, scenario);
  const Report report = explorer->explore();
  std::printf("explore %s%s: %s\n", options.name, options.faults.empty() ? "" : " (with a fault)",
              report.summary().c_str());
  if (report.has_failed) {
    std::printf("  %s\n  replay: WEIR_EXPLORE_SCHEDULE=%s\n", report.failure.c_str(), report.schedule.c_str());
  }
  if (wanted != nullptr || (report.has_failed && options.faults.empty() && options.replay.empty())) {
    std::printf("%s", report.trace.c_str());
  }
  std::fflush(stdout);
  return report;
}

}  // namespace weir::explore
