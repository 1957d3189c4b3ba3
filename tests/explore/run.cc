// One run: the scenario is set up, its threads run, and it is judged.
#include <algorithm>
#include <cstdlib>
#include <exception>

#include "tests/explore/explorer_state.h"

namespace weir::explore {

Explorer* running = nullptr;
std::uint64_t runs = 0;

Explorer::Explorer(const Options& options, const std::function<void(Scene&)>& scenario)
    : options_(options), scenario_(scenario) {}

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
  choices_.begin_run();
  outcome_ = Outcome::running;
  trace_.begin(choices_.mode() == Choices::Mode::replay);
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
  memory.restore_outside();
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

}  // namespace weir::explore
