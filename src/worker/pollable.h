// Pollable: what a worker turns.
#pragma once

#include "base/time.h"

namespace weir::worker {

// Has one descriptor (or none, in simulation) and is called by the worker's loop only.
class Pollable {
 public:
  virtual ~Pollable() = default;

  // One turn. True if anything was done or more can be done at once.
  virtual bool poll_once(Instant now) = 0;
  // When the next turn is due if nothing arrives before: a time that has passed if there is work now.
  virtual Instant next_deadline() const = 0;
  virtual int descriptor() const = 0;
  // There was no room to send: poll again when the descriptor is writable.
  virtual bool is_blocked() const = 0;
  // There was nothing to receive into: the descriptor stays readable whatever one does. next_deadline() says when to
  // look again.
  virtual bool is_starved() const = 0;
  // The poller saw an error condition on the descriptor.
  virtual void note_error() = 0;
  // The loop gets another thread, or none.
  virtual void let_go() = 0;
};

}  // namespace weir::worker
