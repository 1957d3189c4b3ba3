// What the explored code calls for messages that are larger than a record. There are none.
#include "buffer/holds.h"
#include "buffer/open.h"
#include "link/receive_buffer.h"
#include "tests/explore/runtime.h"
#include "weir/body.h"

namespace weir {
namespace {
constexpr const char kLarge[] = "no explored message is large";
}

void Body::copy_to_heap(Bytes) { explore::fail(kLarge); }
std::size_t link::ReceiveBufferPool::in_use() const { explore::fail(kLarge); }

namespace buffer {
PieceRange pieces_of(const Sealed&, std::uint64_t, std::uint64_t) { explore::fail(kLarge); }
void give_back(Sealed*, PieceRange) noexcept { explore::fail(kLarge); }
bool open_all(Landing&) { explore::fail(kLarge); }
}  // namespace buffer

}  // namespace weir
