// CHECK judges our own invariants, in release builds too. It never judges a byte that came from a peer: those
// become error values. The sentence says what broke and, where a caller can cause it, what to do instead.
#pragma once

#include <cstdio>
#include <cstdlib>

#if defined(WEIR_EXPLORE)
#include "tests/explore/runtime.h"
#endif

namespace weir {

// "pool/lane.cc": the folder and the file, wherever the tree was compiled.
consteval const char* source_name(const char* path) {
  const char* file = path;
  const char* folder = path;
  for (const char* at = path; *at != '\0'; ++at) {
    if (*at != '/') continue;
    folder = file;
    file = at + 1;
  }
  return folder;
}

[[noreturn, gnu::cold, gnu::noinline]] inline void check_failed(const char* file, int line, const char* condition,
                                                                const char* sentence) {
  std::fprintf(stderr, "weir: %s:%d: CHECK(%s) failed: %s\n", file, line, condition, sentence);
  std::fflush(stderr);
  std::abort();
}

}  // namespace weir

#if defined(WEIR_EXPLORE)  // ends the schedule that is explored, not the process
#define WEIR_CHECK_FAILED ::weir::explore::check_failed
#else
#define WEIR_CHECK_FAILED ::weir::check_failed
#endif

#define WEIR_CHECK(condition, sentence)                                                 \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      WEIR_CHECK_FAILED(::weir::source_name(__FILE__), __LINE__, #condition, sentence); \
  } while (false)
