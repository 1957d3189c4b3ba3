// Everything a user of Weir includes.
#pragma once

#include "weir/require.h"
// The rest needs what this asks for.
#include "weir/after.h"       // IWYU pragma: export
#include "weir/all.h"         // IWYU pragma: export
#include "weir/allocation.h"  // IWYU pragma: export
#include "weir/buffer.h"      // IWYU pragma: export
#include "weir/bulk.h"        // IWYU pragma: export
#include "weir/call.h"        // IWYU pragma: export
#include "weir/caller.h"      // IWYU pragma: export
#include "weir/canceller.h"   // IWYU pragma: export
#include "weir/config.h"      // IWYU pragma: export
#include "weir/error.h"       // IWYU pragma: export
#include "weir/event.h"       // IWYU pragma: export
#include "weir/identity.h"    // IWYU pragma: export
#include "weir/message.h"     // IWYU pragma: export
#include "weir/method.h"      // IWYU pragma: export
#include "weir/pattern.h"     // IWYU pragma: export
#include "weir/pool.h"        // IWYU pragma: export
#include "weir/room.h"        // IWYU pragma: export
#include "weir/task.h"        // IWYU pragma: export
