// longjmp() between stacks is what fortified builds refuse.
#undef _FORTIFY_SOURCE
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // that a stack is left and entered confuses the compiler
#include "tests/explore/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace weir::explore {

Fiber::~Fiber() {
  if (stack_ != nullptr) munmap(stack_, kStack);
}

void Fiber::start(Body body, void* argument) {
  if (stack_ == nullptr) {
    stack_ = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack_ == MAP_FAILED) {
      std::perror("mmap of a fiber's stack");
      std::abort();
    }
    getcontext(&first_);
  }
  body_ = body;
  argument_ = argument;
  is_new_ = true;
  first_.uc_stack.ss_sp = stack_;
  first_.uc_stack.ss_size = kStack;
  first_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&first_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
  self->body_(self->argument_);
  std::abort();
}

[[gnu::noinline]] void Fiber::resume(Fiber* from) {
  if (from != nullptr && _setjmp(from->context_) != 0) return;
  if (is_new_) {
    is_new_ = false;
    setcontext(&first_);
    std::abort();
  }
  _longjmp(context_, 1);
}

}  // namespace weir::explore
