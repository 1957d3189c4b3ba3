#include "buffer/seal.h"

#include <gtest/gtest.h>

#include "buffer/block.h"
#include "buffer/buffer_testing.h"
#include "buffer/heap_memory.h"
#include "buffer/open.h"
#include "buffer/work.h"
#include "crypto/nonce_ledger.h"

namespace weir::buffer {
namespace {

constexpr std::size_t kSizes[] = {
    0, 1, kRecordBytes - 1, kRecordBytes, kRecordBytes + 1, 3 * kRecordBytes, (std::size_t{5} << 20) + 123};

class Seal : public testing::Test {
 protected:
  void SetUp() override { crypto::forget_recorded_nonces(); }  // each test begins with the same keys

  HeapMemory memory_{std::uint64_t{256} << 20};
  Random random_{1};

  Buffer filled(const Bytes& text, std::size_t piece_bytes = 0) {
    Buffer buffer{make_block(memory_, {.bytes = text.size(), .piece_bytes = piece_bytes})};
    std::size_t at = 0;
    for (const auto& span : buffer.spans()) {
      std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(at), span.size(), span.begin());
      at += span.size();
    }
    return buffer;
  }

  Bytes ciphertext(const Sealed& sealed) {
    Bytes all;
    while (all.size() < sealed.bytes) {
      const ByteSpan slice = sealed.at(all.size());
      all.insert(all.end(), slice.begin(), slice.end());
    }
    return all;
  }

  void expect_opens_to(const Sealed& sealed, const Bytes& text) {
    Landing* const landing = land(memory_, sealed);
    EXPECT_TRUE(open_all(*landing));
    EXPECT_TRUE(std::equal(text.begin(), text.end(), landing->body, landing->body + landing->bytes));
    detail::unpin(landing);
  }
};

TEST_F(Seal, WhatIsSealedOutOfPlaceOpensToTheText) {
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    const Bytes text = random_bytes(random_, size);
    Sealed* const sealed = seal(memory_, text, random_key(random_), thread_key());
    ASSERT_NE(sealed, nullptr);
    EXPECT_EQ(sealed->bytes, size);
    EXPECT_EQ(sealed->records(), records_of(size));
    if (size > 1) {
      EXPECT_NE(ciphertext(*sealed), text);
    }
    expect_opens_to(*sealed, text);
    detail::unpin(sealed);
  }
  EXPECT_EQ(memory_.taken_bytes(), 0u);
}

TEST_F(Seal, InPlaceInPiecesAndOutOfPlaceAreTheSameCiphertextAndTags) {
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    const Bytes text = random_bytes(random_, size);
    const crypto::KeyBytes key = random_key(random_);
    Sealed* const expected = seal(memory_, text, key, thread_key());
    for (const std::size_t piece_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
      crypto::forget_recorded_nonces();
      const auto payload = seal_in_place(filled(text, piece_bytes), key, thread_key());
      ASSERT_TRUE(payload) << payload.error().to_string();
      const Sealed& sealed = *payload->sealed();
      EXPECT_EQ(ciphertext(sealed), ciphertext(*expected));
      const std::size_t tags = sealed.records() * crypto::kTagBytes;
      EXPECT_TRUE(std::equal(sealed.tags, sealed.tags + tags, expected->tags));
      if (piece_bytes == 1) {
        EXPECT_EQ(sealed.parts.size(), std::max<std::uint64_t>(1, records_of(size)));
      }
      expect_opens_to(sealed, text);
    }
    crypto::forget_recorded_nonces();
    detail::unpin(expected);
  }
  EXPECT_EQ(memory_.taken_bytes(), 0u);
}

TEST_F(Seal, ASliceNeverCrossesARecordOrAPiece) {
  const Bytes text = random_bytes(random_, 5 * kRecordBytes + 7);
  const auto payload = seal_in_place(filled(text, 2 * kRecordBytes), random_key(random_), thread_key());
  ASSERT_TRUE(payload);
  const Sealed& sealed = *payload->sealed();
  EXPECT_EQ(sealed.parts.size(), 3u);
  EXPECT_EQ(sealed.at(0).size(), kRecordBytes);
  EXPECT_EQ(sealed.at(kRecordBytes - 1).size(), 1u);
  EXPECT_EQ(sealed.at(2 * kRecordBytes + 5).size(), kRecordBytes - 5);
  EXPECT_EQ(sealed.at(5 * kRecordBytes).size(), 7u);
}

TEST_F(Seal, OtherRecordSizesWorkToo) {
  const Bytes text = random_bytes(random_, 100'000);
  Sealed* const sealed = seal(memory_, text, random_key(random_), thread_key(), kSmallestRecordBytes);
  EXPECT_EQ(sealed->records(), 25u);
  expect_opens_to(*sealed, text);
  detail::unpin(sealed);
}

TEST_F(Seal, EachByteIsSealedOnceHoweverManyHoldThePayload) {
  const Bytes text = random_bytes(random_, 1 << 20);
  const std::uint64_t before = work.sealed_bytes.load();
  const auto payload = seal_in_place(filled(text), random_key(random_), thread_key());
  std::vector<Payload> holders(16, *payload);
  EXPECT_EQ(work.sealed_bytes.load() - before, text.size());
  EXPECT_EQ(holders.back().id(), payload->id());
}

TEST_F(Seal, ATextIsSealedIntoAnAllocatedBufferOfItsSize) {
  const Bytes text = random_bytes(random_, 100'000);
  Buffer buffer{make_block(memory_, {.bytes = text.size(), .piece_bytes = 1})};
  const auto payload = seal_into(std::move(buffer), text, random_key(random_), thread_key());
  ASSERT_TRUE(payload);
  expect_opens_to(*payload->sealed(), text);
  Buffer small{make_block(memory_, {.bytes = 5})};
  EXPECT_EQ(seal_into(std::move(small), text, random_key(random_), thread_key()).error().code(),
            Code::invalid_argument);
}

TEST_F(Seal, ABufferThatNobodyWroteIntoIsRefused) {
  Buffer buffer{make_block(memory_, {.bytes = 5})};
  const auto payload = seal_in_place(std::move(buffer), random_key(random_), thread_key());
  ASSERT_FALSE(payload);
  EXPECT_EQ(payload.error().code(), Code::invalid_argument);
  Buffer other{make_block(memory_, {.bytes = 5})};
  EXPECT_FALSE(adopt(std::move(other), {}));
  EXPECT_FALSE(adopt(Buffer{}, {}));
  EXPECT_FALSE(seal_in_place(Buffer{}, random_key(random_), thread_key()));
  EXPECT_EQ(memory_.taken_bytes(), 0u);
}

TEST_F(Seal, OnlyWhatWasFilledIsSealed) {
  const Bytes text = random_bytes(random_, 5 * kRecordBytes);
  for (const std::size_t size : {std::size_t{0}, std::size_t{10}, std::size_t{2 * kRecordBytes},
                                 std::size_t{2 * kRecordBytes + 1}, text.size()}) {
    for (const std::size_t piece_bytes : {0, 1}) {
      Buffer buffer = filled(text, piece_bytes);
      buffer.filled(size);
      EXPECT_EQ(buffer.size(), size);
      const auto payload = seal_in_place(std::move(buffer), random_key(random_), thread_key());
      ASSERT_TRUE(payload);
      EXPECT_EQ(payload->size(), size);
      expect_opens_to(*payload->sealed(), Bytes(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size)));
    }
  }
}

TEST_F(Seal, AdoptedDataIsSentAsItIsWithADigestOfWhatItsBindingNames) {
  const Bytes text = random_bytes(random_, 2 * kRecordBytes);
  const auto payload = adopt(filled(text), {.offset = 4'096, .length = 32});
  ASSERT_TRUE(payload);
  const Sealed& sealed = *payload->sealed();
  EXPECT_TRUE(sealed.adopted);
  EXPECT_EQ(sealed.binding_offset, 4'096u);
  EXPECT_EQ(sealed.binding_bytes, 32u);
  EXPECT_EQ(sealed.key, binding_digest(ByteSpan{text}.subspan(4'096, 32)));
  EXPECT_EQ(ciphertext(sealed), text);
  EXPECT_EQ(sealed.tags, nullptr);
}

TEST_F(Seal, ABindingLiesInTheBufferAndInOnePieceOfIt) {
  const Bytes text = random_bytes(random_, 2 * kRecordBytes);
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  for (const Binding& outside : {Binding{2 * kRecordBytes, 1}, Binding{1, 2 * kRecordBytes}, Binding{kHuge, 2},
                                 Binding{2, kHuge}, Binding{kHuge, kHuge}}) {
    EXPECT_EQ(adopt(filled(text), outside).error().code(), Code::invalid_argument);
  }
  EXPECT_TRUE(adopt(filled(text), {.offset = kRecordBytes - 1, .length = 2}));
  EXPECT_FALSE(adopt(filled(text, 1), {.offset = kRecordBytes - 1, .length = 2}));
  EXPECT_TRUE(adopt(filled(text, 1), {.offset = kRecordBytes, .length = kLargestBindingBytes}));
  EXPECT_FALSE(adopt(filled(text, 1), {.offset = kRecordBytes, .length = kLargestBindingBytes + 1}));
  EXPECT_TRUE(adopt(filled(text), {}));
}

TEST_F(Seal, WithoutMemoryThereIsNoPayloadAndNothingIsLeft) {
  HeapMemory small{3 * kRecordBytes};
  const Bytes text = random_bytes(random_, 4 * kRecordBytes);
  EXPECT_EQ(seal(small, text, random_key(random_), thread_key()), nullptr);
  EXPECT_EQ(make_block(small, {.bytes = text.size(), .piece_bytes = 1}), nullptr);
  EXPECT_EQ(small.taken_bytes(), 0u);
}

TEST_F(Seal, TheKeyIsWipedWithThePayload) {
  // Memory that keeps what was given back, to be looked into.
  struct Watched final : Memory {
    Piece take(std::size_t bytes, int) override {
      room.resize(bytes + 64);
      const auto address = reinterpret_cast<std::uintptr_t>(room.data());
      return {.data = room.data() + (64 - address % 64) % 64, .bytes = bytes};
    }
    void give_back(const Piece&) noexcept override {}
    Bytes room;
  } watched;
  const crypto::KeyBytes key = random_key(random_);
  const auto holds_key = [&] {
    return std::search(watched.room.begin(), watched.room.end(), key.begin(), key.end()) != watched.room.end();
  };
  Sealed* const sealed = seal(watched, random_bytes(random_, 100), key, thread_key());
  EXPECT_TRUE(holds_key());
  detail::unpin(sealed);
  EXPECT_FALSE(holds_key());

  Landing* const landing = make_landing(watched, 100);
  landing->key = key;
  EXPECT_TRUE(holds_key());
  detail::unpin(landing);
  EXPECT_FALSE(holds_key());
}

TEST(BlockShape, RefusesWhatNobodyCanWant) {
  EXPECT_TRUE(is_possible({.bytes = 0}));
  EXPECT_TRUE(is_possible({.bytes = kLargestPayloadBytes}));
  EXPECT_FALSE(is_possible({.bytes = kLargestPayloadBytes + 1}));
  EXPECT_FALSE(is_possible({.bytes = ~std::uint64_t{0}}));
  EXPECT_FALSE(is_possible({.bytes = 1, .piece_bytes = ~std::uint64_t{0}}));
  EXPECT_FALSE(is_possible({.bytes = (kMaxPieces + 1) * kRecordBytes, .piece_bytes = 1}));
  EXPECT_FALSE(is_possible({.bytes = 1, .record_bytes = 0}));
  EXPECT_FALSE(is_possible({.bytes = 1, .record_bytes = kLargestRecordBytes + 1}));
}

}  // namespace
}  // namespace weir::buffer
