// Segment: one datagram in two pieces of memory.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace weir {

// The datagram is `head` followed by `body`. Owns neither. The body may be a payload's own memory, which is how large
// messages are sent without a copy.
struct Segment {
  ByteSpan head;
  ByteSpan body;

  std::size_t size() const { return head.size() + body.size(); }
};

}  // namespace weir
