// CHECK judges our own invariants, in release builds too. It never judges a byte that came from a peer: those
// become error values. The sentence says what broke and, where a caller can cause it, what to do instead.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace weir {

[[noreturn, gnu::cold, gnu::noinline]] inline void check_failed(const char* file, int line, const char* condition,
                                                                const char* sentence) {
  std::fprintf(stderr, "weir: %s:%d: CHECK(%s) failed: %s\n", file, line, condition, sentence);
  std::fflush(stderr);
  std::abort();
}

}  // namespace weir

#define WEIR_CHECK(condition, sentence)                               \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::weir::check_failed(__FILE__, __LINE__, #condition, sentence); \
  } while (false)
