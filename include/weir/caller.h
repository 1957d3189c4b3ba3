// Caller: who made a request, as far as this side knows.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace weir {

// Valid until the request is answered: copy what is needed longer.
struct Caller {
  // With an identity: the first of `names`. With a shared secret: what the caller calls itself (Config::name), which
  // shows no more than that it knows the secret.
  std::string_view name{};
  // All that its certificate proves, as Identity::authorise() is told them. Empty with a shared secret.
  std::span<const std::string> names{};
  // Where its packets came from when its path was made.
  std::string_view address{};

  // Its certificate has this very name (in lower case). Always false with a shared secret.
  bool proves(std::string_view wanted) const { return std::ranges::find(names, wanted) != names.end(); }
};

}  // namespace weir
