#include "tests/explore/operation.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weir::explore {

std::string place(const Where& where) {
  const char* const file = std::strrchr(where.file_name(), '/');
  return std::string(file == nullptr ? where.file_name() : file + 1) + ":" + std::to_string(where.line());
}

void check_life(Location& location, const Where& where) {
  if (location.is_dead || (location.block != nullptr && location.block->is_freed)) {
    running->fail(place(where) + ": an object is used after its end");
  }
  if (location.block != nullptr && !running->me().knows.happened.knows(location.block->made)) {
    running->fail(place(where) + ": an object is used by a thread that has not synchronised with its making");
  }
  location.accessed[running->current()] = my_moment().time;
}

Location& object_at(const void* address, const Where& where) {
  Location& location = running->memory.at(address, Location::Kind::object);
  check_life(location, where);
  return location;
}

bool is_running() noexcept { return running != nullptr; }
std::uint64_t run_number() noexcept { return running == nullptr ? 0 : runs; }
std::size_t thread_index() noexcept { return running == nullptr ? 0 : running->current(); }
Moment now() noexcept { return running == nullptr ? Moment{} : my_moment(); }

void at_thread_end(void (*function)(void*), void* argument) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->me().ends.emplace_back(function, argument);
}

std::int64_t read_clock_ns() noexcept {
  return running == nullptr ? 1'000'000'000 : 1'000'000'000 + 100'000 * ++running->me().clock_reads;
}

void fail(const char* sentence) noexcept {
  if (running == nullptr) {
    std::fprintf(stderr, "%s\n", sentence);
    std::abort();
  }
  const arena::Off off;
  running->fail(sentence);
}

void check_failed(const char* file, int line, const char* condition, const char* sentence) noexcept {
  arena::turn(false);
  const std::string text =
      std::string(file) + ":" + std::to_string(line) + ": CHECK(" + condition + ") failed: " + sentence;
  fail(text.c_str());
}

}  // namespace weir::explore
