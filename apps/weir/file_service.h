// The methods of `weir serve-files`: what a peer may do with a directory. Handlers run beside the worker, because disks
// are slow.
#pragma once

#include <memory>

#include "apps/weir/files.h"
#include "weir/pool.h"

namespace weir::command {

Result<void> serve_files(Pool& pool, const std::shared_ptr<Files>& files);

}  // namespace weir::command
