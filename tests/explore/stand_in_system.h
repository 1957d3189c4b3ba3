// Where a thread of the model sleeps that waits for a descriptor.
#pragma once

namespace weir::explore {

const void* sleeping_place(int descriptor);

}  // namespace weir::explore
