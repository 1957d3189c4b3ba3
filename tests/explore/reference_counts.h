// The reference counts of std::shared_ptr, as operations of the explorer. Included in front of everything else (see
// CMakeLists.txt): what libstdc++ calls to change a count is replaced before <memory> is read.
#pragma once

#include <bits/c++config.h>
#undef _GLIBCXX_TSAN
#define _GLIBCXX_TSAN 1  // std::shared_ptr then takes no short cut when it lets go of the only reference
#include <ext/atomicity.h>

namespace weir::explore {
int count_reference(int* count, int change) noexcept;
}

namespace __gnu_cxx {  // NOLINT: where the replaced functions are
inline int weir_explored_exchange_and_add(int* count, int change) noexcept {
  return ::weir::explore::count_reference(count, change);
}
inline void weir_explored_add(int* count, int change) noexcept { ::weir::explore::count_reference(count, change); }
}  // namespace __gnu_cxx

#define __exchange_and_add_dispatch weir_explored_exchange_and_add
#define __atomic_add_dispatch weir_explored_add
