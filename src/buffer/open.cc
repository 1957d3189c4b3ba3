#include "buffer/open.h"

#include <algorithm>

#include "base/check.h"
#include "buffer/seal.h"
#include "buffer/work.h"

namespace weir::buffer {
namespace {

bool open_one(Landing& landing, std::uint64_t record, ByteSpan from, std::byte* to, crypto::AeadKey& key) {
  const auto aad = record_aad(landing.payload_bytes);
  const crypto::Nonce nonce = crypto::make_nonce(kRecordDomain, landing.first_record + record);
  const std::byte* const tag = landing.tags + record * crypto::kTagBytes;
  const bool fits =
      to == from.data() ? key.open(nonce, aad, {to, from.size()}, tag) : key.open_into(nonce, aad, from, to, tag);
  if (fits) {
    count_opened(from.size());
  } else {
    landing.failed_record = record;
  }
  return fits;
}

void check(const Landing& landing) {
  WEIR_CHECK(landing.bytes <= landing.capacity, "a message is at most as long as its landing");
  WEIR_CHECK(!landing.adopted, "what the application sealed itself is not opened by us");
}

// Of adopted data.
bool is_what_it_says(Landing& landing) {
  if (landing.failed_record != Landing::kNoRecord) return false;
  if (landing.opened_records != 0) return true;  // whoever takes it over asks again
  ++thread_work.bindings;
  const bool inside =
      landing.binding_bytes <= landing.bytes && landing.binding_offset <= landing.bytes - landing.binding_bytes;
  if (inside && crypto::equal_in_constant_time(
                    binding_digest({landing.body + landing.binding_offset, landing.binding_bytes}), landing.key)) {
    landing.opened_records = landing.records();
    return true;
  }
  std::fill_n(landing.body, landing.bytes, std::byte{0});
  landing.failed_record = 0;
  return false;
}

ByteSpan place_of(const Landing& landing, std::uint64_t record) {
  return {landing.body + record * landing.record_bytes, record_length(landing, record)};
}

bool open_next_keyed(Landing& landing, ByteSpan from, crypto::AeadKey& key) {
  const std::uint64_t record = landing.opened_records;
  if (!open_one(landing, record, from, landing.body + record * landing.record_bytes, key)) return false;
  ++landing.opened_records;
  return true;
}

}  // namespace

std::uint64_t record_length(const Landing& landing, std::uint64_t record) {
  WEIR_CHECK(record < landing.records(), "a record is one of its landing's");
  return std::min<std::uint64_t>(landing.record_bytes, landing.bytes - record * landing.record_bytes);
}

bool open_next(Landing& landing, crypto::AeadKey& scratch) {
  check(landing);
  if (landing.failed_record != Landing::kNoRecord) return false;
  scratch.rekey(landing.key);
  return open_next_keyed(landing, place_of(landing, landing.opened_records), scratch);
}

bool open_next_from(Landing& landing, ByteSpan from, crypto::AeadKey& scratch) {
  check(landing);
  WEIR_CHECK(from.size() == record_length(landing, landing.opened_records), "a record is opened whole");
  if (landing.failed_record != Landing::kNoRecord) return false;
  scratch.rekey(landing.key);
  return open_next_keyed(landing, from, scratch);
}

bool open_all(Landing& landing, crypto::AeadKey& scratch) {
  if (landing.adopted) return is_what_it_says(landing);
  if (landing.is_open()) return true;
  check(landing);
  if (landing.failed_record != Landing::kNoRecord) return false;
  scratch.rekey(landing.key);
  while (!landing.is_open()) {
    if (!open_next_keyed(landing, place_of(landing, landing.opened_records), scratch)) return false;
  }
  return true;
}

bool open_all(Landing& landing) { return open_all(landing, thread_key()); }

bool open_into(Landing& landing, std::uint64_t record, std::byte* to, crypto::AeadKey& scratch) {
  check(landing);
  WEIR_CHECK(record >= landing.opened_records, "a record that was opened in place cannot be opened again");
  if (landing.failed_record != Landing::kNoRecord) {
    std::fill_n(to, record_length(landing, record), std::byte{0});
    return false;
  }
  scratch.rekey(landing.key);
  return open_one(landing, record, place_of(landing, record), to, scratch);
}

bool open_into(Landing& landing, std::uint64_t record, std::byte* to) {
  return open_into(landing, record, to, thread_key());
}

}  // namespace weir::buffer
