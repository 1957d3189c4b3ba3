// Fiber: a stack of its own for one thread of the model.
#pragma once

#include <ucontext.h>

#include <csetjmp>
#include <cstddef>

namespace weir::explore {

// Switches cost no system call; only the first entry of each start() does.
class Fiber {
 public:
  using Body = void (*)(void*);

  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // `body` must not return: it ends with a switch that never comes back. What ran here before is forgotten.
  void start(Body body, void* argument);
  // Leaves the caller's context in `from` (if it is not null) and goes on here.
  void resume(Fiber* from);

 private:
  static constexpr std::size_t kStack = 256 * 1024;
  static void enter(unsigned high, unsigned low);

  void* stack_ = nullptr;
  Body body_ = nullptr;
  void* argument_ = nullptr;
  bool is_new_ = false;
  jmp_buf context_{};
  ucontext_t first_{};
};

}  // namespace weir::explore
