// Where keys, randoms and incarnations come from.
#pragma once

#include "base/bytes.h"

namespace weir::crypto {

// An interface so that simulations and tests can be replayed. Their seeded source lives with them: production code
// has no class that could stand in for the system's.
class Entropy {
 public:
  virtual ~Entropy() = default;
  virtual void fill(MutableByteSpan out) = 0;
};

// The operating system's generator. Stateless, so any thread may use one. Stops the process if the system refuses:
// there is no safe way to go on.
class SystemEntropy final : public Entropy {
 public:
  void fill(MutableByteSpan out) override;
};

}  // namespace weir::crypto
