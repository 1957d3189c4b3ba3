// What a compiler must offer, told in one sentence instead of pages of errors about what follows from its lack.
#pragma once

#include <version>

#ifndef __cpp_lib_expected
#if defined(__clang__) && defined(__GLIBCXX__) && __cplusplus > 202002L
#error "weir needs <expected>; with clang before 19 add: -U__cpp_concepts -D__cpp_concepts=202002L"
#else
#error "weir needs C++23 with <expected>: g++ 12 with -std=c++23, clang 16 with -std=c++2b, or newer"
#endif
#include "weir/needs-cpp23"  // is not there, so that the compiler stops here
#endif
