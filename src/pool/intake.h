// Intake: takes the data of one large request as it is opened, record by record, instead of a handler that reads it
// when all of it is open. On an executor thread; where there is none, one record in each turn of the loop.
#pragma once

#include "buffer/landing.h"
#include "weir/message.h"

namespace weir::pool {

// One per request. One thread at a time.
class Intake {
 public:
  Intake() = default;
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;
  virtual ~Intake() = default;

  // Opens and takes the next record. False: there is none left, or it failed.
  virtual bool take_next(buffer::Landing& landing) = 0;
  virtual void answer(Responder responder) = 0;
};

}  // namespace weir::pool
