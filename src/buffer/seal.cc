#include "buffer/seal.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "base/check.h"
#include "buffer/block.h"
#include "buffer/work.h"
#include "crypto/hkdf.h"

namespace weir::buffer {
namespace {

// Record by record, in order.
template <class Seal>
void seal_records(Block& block, const crypto::KeyBytes& key, crypto::AeadKey& scratch, Seal&& one) {
  block.key = key;
  scratch.rekey(block.key);
  const auto aad = record_aad(block.bytes);
  std::uint64_t record = 0;
  for (std::uint64_t offset = 0; offset < block.bytes; ++record) {
    const ByteSpan place = block.at(offset);
    one(crypto::make_nonce(kRecordDomain, record), aad, offset, place,
        block.writable_tags + record * crypto::kTagBytes);
    count_sealed(place.size());
    offset += place.size();
  }
  block.state.store(Block::State::sealed, std::memory_order_release);  // the ciphertext is whole from here on
}

// The room of an allocated block, which Sealed shows to its readers as constant.
std::byte* writable(ByteSpan place) { return const_cast<std::byte*>(place.data()); }

void seal_from(Block& block, ByteSpan text, const crypto::KeyBytes& key, crypto::AeadKey& scratch) {
  seal_records(block, key, scratch,
               [&](const crypto::Nonce& nonce, ByteSpan aad, std::uint64_t offset, ByteSpan place, std::byte* tag) {
                 scratch.seal_into(nonce, aad, text.subspan(offset, place.size()), writable(place), tag);
               });
}

constexpr const char* kEmpty = "this buffer is empty: it was moved from, sealed or never allocated";

// Why a buffer cannot be sent as it is.
std::optional<Error> refusal(const Buffer& buffer) {
  if (!buffer) return Error(Code::invalid_argument, kEmpty);
  if (buffer.state() != Buffer::State::allocated || buffer.size() == 0) return std::nullopt;
  return Error(Code::invalid_argument, "nothing was written into this buffer: fill span() first");
}

}  // namespace

crypto::AeadKey& thread_key() {
  thread_local const std::unique_ptr<crypto::AeadKey> key =
      crypto::Aead::create(crypto::default_backend().backend)->make_key(crypto::KeyBytes{});
  return *key;
}

Sealed* seal(Memory& memory, ByteSpan text, const crypto::KeyBytes& key, crypto::AeadKey& scratch,
             std::uint32_t record_bytes, std::uint64_t piece_bytes) {
  const BlockShape shape{.bytes = text.size(), .piece_bytes = piece_bytes, .record_bytes = record_bytes};
  WEIR_CHECK(is_possible(shape), "a payload is at most 16 TiB, in records of 4 to 60 KiB");
  Block* const block = make_block(memory, shape);
  if (block == nullptr) return nullptr;
  seal_from(*block, text, key, scratch);
  // What the first handle held is the caller's hold. Relaxed: nobody else knows it yet.
  if (block->holds != nullptr) block->holds->handles.store(0, std::memory_order_relaxed);
  return block;
}

Result<Payload> seal_into(Buffer buffer, ByteSpan text, const crypto::KeyBytes& key, crypto::AeadKey& scratch) {
  if (!buffer) return std::unexpected(Error(Code::invalid_argument, kEmpty));
  if (buffer.state() != Buffer::State::allocated || buffer.size() != text.size()) {
    return std::unexpected(
        Error(Code::invalid_argument, "a text is sealed into a buffer of its size that nothing was written into"));
  }
  Block* const block = buffer.release();
  seal_from(*block, text, key, scratch);
  return Payload{block};
}

Result<Payload> seal_in_place(Buffer buffer, const crypto::KeyBytes& key, crypto::AeadKey& scratch) {
  if (auto error = refusal(buffer)) return std::unexpected(*std::move(error));
  Block* const block = buffer.release();
  seal_records(*block, key, scratch,
               [&](const crypto::Nonce& nonce, ByteSpan aad, std::uint64_t, ByteSpan place, std::byte* tag) {
                 scratch.seal(nonce, aad, {writable(place), place.size()}, tag);
               });
  return Payload{block};
}

crypto::KeyBytes binding_digest(ByteSpan bytes) {
  constexpr char kLabel[] = "weir binding";
  const crypto::Secret digest = crypto::hkdf_extract(std::as_bytes(std::span{kLabel}), bytes);
  crypto::KeyBytes first;
  std::copy_n(digest.bytes().begin(), first.size(), first.begin());
  return first;
}

Result<Payload> adopt(Buffer buffer, const Binding& binding) {
  if (auto error = refusal(buffer)) return std::unexpected(*std::move(error));
  ByteSpan bound;
  if (binding.length != 0) {
    if (binding.length > buffer.size() || binding.offset > buffer.size() - binding.length) {
      return std::unexpected(Error(Code::invalid_argument, "a binding names bytes of the buffer itself"));
    }
    if (binding.length > kLargestBindingBytes) {
      return std::unexpected(Error(Code::invalid_argument, "a binding has at most 16 KiB"));
    }
    const auto part = buffer.block()->part_at(binding.offset);
    const std::uint64_t in_part = binding.offset - part.begin;
    if (binding.length > part.bytes.size() - in_part) {
      return std::unexpected(Error(Code::invalid_argument, "a binding lies in one piece of a buffer"));
    }
    bound = part.bytes.subspan(in_part, binding.length);
  }
  Block* const block = buffer.release();
  block->adopted = true;
  block->binding_offset = binding.length != 0 ? binding.offset : 0;
  block->binding_bytes = binding.length;
  block->key = binding_digest(bound);
  block->tags = nullptr;
  block->state.store(Block::State::sealed, std::memory_order_release);
  return Payload{block};
}

}  // namespace weir::buffer
