// What other threads have a worker do.
#include <memory>
#include <utility>

#include "worker/waiting.h"
#include "worker/worker.h"

namespace weir::worker {

void Worker::run_commands() {
  for (;;) {
    Command* command = nullptr;
    {
      std::lock_guard lock(commands_mutex_);
      if (commands_.empty()) return;
      command = commands_.front();
      commands_.erase(commands_.begin());
    }
    command->run();
    if (is_in_child()) return;
    if (command->is_posted) {
      delete command;
      continue;
    }
    std::lock_guard lock(commands_mutex_);
    command->is_done = true;
    command_done_.notify_all();
  }
}

bool Worker::has_commands() {
  std::lock_guard lock(commands_mutex_);
  return !commands_.empty();
}

bool Worker::run_on_loop(const std::function<void()>& function, Instant until) {
  if (is_in_child()) return false;
  if (is_mine()) {
    function();
    return true;
  }
  if (!has_thread() && run_in_stead(function)) return true;
  Command command{function};
  const auto is_done = [&] { return command.is_done; };
  std::unique_lock lock(commands_mutex_);
  if (has_ended_) return false;
  commands_.push_back(&command);
  doorbell_->ring();
  if (has_thread()) {
    command_done_.wait(lock, is_done);
    return true;
  }
  while (!command_done_.wait_for(lock, kOwnerCheck, is_done)) {
    const bool is_late = read_clock() >= until;
    if (!is_late && has_owner()) continue;
    if (std::erase(commands_, &command) == 0) {
      command_done_.wait(lock, is_done);  // it is running
      return true;
    }
    if (is_late) return false;
    lock.unlock();
    if (run_in_stead(function)) return true;
    lock.lock();
    commands_.push_back(&command);
    doorbell_->ring();
  }
  return true;
}

bool Worker::try_on_loop(const std::function<void()>& function, Instant until) {
  if (is_in_child()) return false;
  if (!has_thread() || is_mine()) return run_on_loop(function, until);
  Command command{function};
  std::unique_lock lock(commands_mutex_);
  if (has_ended_) return false;
  commands_.push_back(&command);
  doorbell_->ring();
  while (!command.is_done && read_clock() < until) command_done_.wait_for(lock, wait_until(until));
  if (command.is_done) return true;
  if (std::erase(commands_, &command) != 0) return false;
  command_done_.wait(lock, [&] { return command.is_done; });  // it is running
  return true;
}

void Worker::post(std::function<void()> function) {
  if (is_in_child()) return;
  auto command = std::make_unique<Command>(Command{.run = std::move(function), .is_posted = true});
  {
    std::lock_guard lock(commands_mutex_);
    commands_.push_back(command.release());
  }
  doorbell_->ring();
  if (!has_owner()) run_in_stead({});
}

bool Worker::run_in_stead(const std::function<void()>& function) {
  if (is_in_child()) return false;
  std::lock_guard lock(loan_mutex_);
  if (!try_own()) return false;
  if (function) function();
  run_commands();
  give_up();
  return true;
}

}  // namespace weir::worker
