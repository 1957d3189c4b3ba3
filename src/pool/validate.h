// Says in sentences what is wrong with a configuration.
#pragma once

#include "weir/config.h"
#include "weir/error.h"

namespace weir::pool {

Result<void> validate(const Config& config);

}  // namespace weir::pool
