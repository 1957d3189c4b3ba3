#include "pool/allocation.h"

#include <coroutine>
#include <optional>
#include <utility>

#include "pool/awaited.h"

namespace weir::detail {

struct AllocationRecord final : buffer::BufferPool::Waiter, pool::Awaited<Buffer> {
  AllocationRecord(std::shared_ptr<buffer::BufferPool> buffers_, std::shared_ptr<worker::Worker> loop)
      : Awaited(std::move(loop)), buffers(std::move(buffers_)) {}

  void on_allocated(Result<Buffer> given) noexcept override { tell(std::move(given)); }
  bool stop_waiting() noexcept override { return buffers->cancel(*this); }

  const std::shared_ptr<buffer::BufferPool> buffers;
};

bool allocation_ready(const AllocationRecord* record) noexcept { return record->is_ready(); }

bool allocation_suspend(AllocationRecord* record, std::coroutine_handle<> waiter) noexcept {
  return record->suspend(waiter);
}

Result<Buffer> allocation_take(AllocationRecord* record) { return record->take(); }

Result<Buffer> allocation_wait(AllocationRecord* record) {
  return record->wait(
      "get() was called inside a handler or continuation on the thread that turns the loop, which may be what the "
      "memory waits for: await the allocation");
}

void allocation_drop(AllocationRecord* record) noexcept { record->drop(); }

}  // namespace weir::detail

namespace weir::pool {

Allocation allocate(const std::shared_ptr<buffer::BufferPool>& buffers, std::shared_ptr<worker::Worker> loop,
                    std::size_t bytes, const AllocateOptions& options) {
  Result<Buffer> now = buffers->try_allocate(bytes, options);
  if (now || !options.wait || now.error().code() != Code::overloaded) return Allocation(std::move(now));
  auto* record = new detail::AllocationRecord(buffers, std::move(loop));
  if (std::optional<Result<Buffer>> late = buffers->allocate(bytes, options, *record)) {
    delete record;
    return Allocation(*std::move(late));
  }
  return Allocation(record);
}

}  // namespace weir::pool
