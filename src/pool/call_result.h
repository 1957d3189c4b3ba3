// What becomes of a call's outcome: kept in its record for whoever comes for it, or made into a Result at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/sync.h"
#include "buffer/landing.h"
#include "pool/call_record.h"
#include "pool/gate.h"
#include "pool/keep.h"
#include "weir/call.h"

namespace weir::pool {

inline constexpr const char kForgedReply[] = "the reply's data does not authenticate";

// "\"greet\" at 10.0.0.7:4433: the deadline passed": the peer and the method of a call that failed, where that is what
// one asks next. The words of handlers stay as they are, and so does what may come in masses.
Error with_names(const CallRecord* record, const std::string& peer, Error error, bool is_ours);

inline Error make_error(Code code, const char* literal, ByteSpan words, bool may_have_run) {
  if (words.empty()) return {code, literal, may_have_run};
  return {code, std::string(reinterpret_cast<const char*>(words.data()), words.size()), may_have_run};
}

// A large reply, which is opened here if it is not open yet. Takes over one reference.
Result<Reply> take_landing(buffer::Landing* landing, Gate& gate);
// Keeps a large reply in the record.
void store_landing(CallRecord* record, buffer::Landing* landing);

// Straight from where the reply lies.
inline Result<Reply> make_result(const transfer::Outcome& outcome, Gate& gate) {
  if (outcome.failed) [[unlikely]] {
    return std::unexpected(make_error(outcome.code, outcome.sentence, outcome.bytes, outcome.may_have_run));
  }
  if (outcome.landing != nullptr) [[unlikely]] {
    detail::pin(outcome.landing);
    return take_landing(outcome.landing, gate);
  }
  return Result<Reply>(std::in_place, keep_bytes(outcome.bytes, outcome.pin, gate), outcome.header_bytes);
}

// Keeps the outcome in the record, for whoever comes for it later.
inline void store_result(CallRecord* record, const transfer::Outcome& outcome) {
  sync::writes(&record->kept);
  record->kept.failed = outcome.failed;
  record->kept.code = outcome.code;
  record->kept.may_have_run = outcome.may_have_run;
  record->kept.is_landing = false;
  record->kept.pin = nullptr;
  record->kept.bytes = static_cast<std::uint32_t>(outcome.bytes.size());
  record->kept.header_bytes = static_cast<std::uint16_t>(outcome.header_bytes);
  if (outcome.landing != nullptr) [[unlikely]] {
    store_landing(record, outcome.landing);
  } else if (outcome.bytes.empty()) {
    record->kept.data = reinterpret_cast<const std::byte*>(outcome.sentence);
  } else if (outcome.bytes.size() <= CallRecord::kInlineBytes) {
    std::memcpy(record->inline_bytes, outcome.bytes.data(), outcome.bytes.size());
    record->kept.data = record->inline_bytes;
  } else if (Gate& gate = *record->core->shared; may_stay(outcome.bytes, outcome.pin, gate)) {
    detail::pin(outcome.pin);
    record->kept.pin = outcome.pin;
    record->kept.data = outcome.bytes.data();
  } else {
    transfer::Block* block = copy_to_block(outcome.bytes, gate);
    record->kept.pin = block;
    record->kept.data = block->bytes();
  }
}

inline Result<Reply> take_stored(CallRecord* record) {
  sync::writes(&record->kept);
  const ByteSpan bytes{record->kept.data, record->kept.bytes};
  detail::Pin* pin = std::exchange(record->kept.pin, nullptr);
  if (record->kept.failed) [[unlikely]] {
    const char* literal = bytes.empty() ? reinterpret_cast<const char*>(record->kept.data) : "";
    Error error = make_error(record->kept.code, literal, bytes, record->kept.may_have_run);
    if (pin != nullptr) detail::unpin(pin);
    return std::unexpected(std::move(error));
  }
  if (record->kept.is_landing) [[unlikely]]
    return take_landing(static_cast<buffer::Landing*>(pin), *record->core->shared);
  if (pin == nullptr || bytes.size() <= Body::kInlineBytes) {
    Result<Reply> result(std::in_place, Body(bytes), record->kept.header_bytes);
    if (pin != nullptr) detail::unpin(pin);
    return result;
  }
  return Result<Reply>(std::in_place, Body(bytes, pin), record->kept.header_bytes);
}

// Whether an error of this outcome is in words of this side's, and not in those of the peer or of its handler.
inline bool has_own_words(const transfer::Outcome& outcome) { return !outcome.failed || outcome.bytes.empty(); }
inline bool has_own_words(const CallRecord& done) { return !done.kept.failed || done.kept.bytes == 0; }

// The same, and an error names the peer and the method.
inline Result<Reply> take_named(CallRecord* record, const std::string& peer) {
  const bool is_ours = has_own_words(*record);
  Result<Reply> result = take_stored(record);
  if (!result) [[unlikely]]
    return std::unexpected(with_names(record, peer, std::move(result).error(), is_ours));
  return result;
}

// A large reply on its way to somebody who is not to open it: on the worker it is opened elsewhere first, and `record`
// completes later. False: it may complete now.
bool open_first(CallRecord* record, buffer::Landing* landing);
// The same for one that is done and whose result is kept.
bool open_kept_first(CallRecord* record);

}  // namespace weir::pool
