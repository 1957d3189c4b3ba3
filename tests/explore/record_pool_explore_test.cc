// Record pools: one thread takes, others give back, and the memory goes with the last record.
#include <memory>
#include <utility>
#include <vector>

#include "pool/record_pool.h"
#include "tests/explore/finding.h"
#include "worker/sync.h"

namespace weir::explore {
namespace {

struct Record {
  using Pool = pool::RecordPool<Record, std::shared_ptr<int>>;
  Record* link = nullptr;
  Pool::Core* core = nullptr;
  int value = 0;
};

struct Shared {
  sync::Atomic<Record*> boxes[2];
};

void give(sync::Atomic<Record*>& box, Record* record) {
  sync::writes(record);
  record->value = 7;
  box.store(record, std::memory_order_release);
}

Record* take(sync::Atomic<Record*>& box) {
  for (;;) {
    if (Record* record = box.load(std::memory_order_acquire)) return record;
    sync::yield();
  }
}

// One gives away what it takes and ends the pool; two others give it back.
void end_while_records_are_out(Scene& run) {
  auto shared = std::make_shared<Shared>();
  run.thread([shared] {
    Record::Pool pool(std::make_shared<int>(1), 4);
    Record* const kept = pool.acquire();
    for (int i = 0; i < 2; ++i) give(shared->boxes[i], pool.acquire());
    Record::Pool::release(kept);
  });
  for (int i = 0; i < 2; ++i) {
    run.thread([shared, i] {
      Record* const record = take(shared->boxes[i]);
      sync::reads(record);
      check(record->value == 7 && *record->core->shared == 1, "a record is whole while it is out");
      Record::Pool::release(record);
    });
  }
}

// More are taken than one chunk holds, so what came back is taken again.
void take_again(Scene& run) {
  auto shared = std::make_shared<Shared>();
  run.thread([shared] {
    Record::Pool pool(std::make_shared<int>(1), 1);
    std::vector<Record*> all;
    while (Record* record = pool.acquire()) all.push_back(record);
    check(all.size() == Record::Pool::kChunk, "a pool has no more than it may");
    give(shared->boxes[0], all.back());
    all.pop_back();
    Record* again = nullptr;
    while ((again = pool.acquire()) == nullptr) sync::yield();
    sync::writes(again);
    all.push_back(again);
    for (Record* record : all) Record::Pool::release(record);
  });
  run.thread([shared] {
    Record* const record = take(shared->boxes[0]);
    sync::writes(record);
    record->value = 8;
    Record::Pool::release(record);
  });
}

TEST(ExploreRecordPool, MemoryGoesWithTheLastRecord) {
  expect_sound({.name = "record pool, its end", .preemptions = 2, .stale_reads = 1}, end_while_records_are_out);
}

TEST(ExploreRecordPool, WhatOthersGaveBackIsTakenAgain) {
  expect_sound({.name = "record pool, taken again", .preemptions = 2, .stale_reads = 1}, take_again);
}

TEST(ExploreRecordPool, EveryOrderIsNeeded) {
  expect_found({.name = "record pool, its end"},
               {"record_pool.h", "::release_elsewhere(", Fault::Kind::relax, Operation::exchange},
               end_while_records_are_out);
  expect_found({.name = "record pool, its end"},
               {"record_pool.h", "::~RecordPool(", Fault::Kind::relax, Operation::exchange}, end_while_records_are_out);
  expect_found({.name = "record pool, taken again"},
               {"record_pool.h", "::release_elsewhere(", Fault::Kind::relax, Operation::compare}, take_again);
  expect_found({.name = "record pool, taken again"},
               {"record_pool.h", "::refill(", Fault::Kind::relax, Operation::exchange}, take_again);
}

}  // namespace
}  // namespace weir::explore
