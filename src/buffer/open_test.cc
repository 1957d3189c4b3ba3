#include "buffer/open.h"

#include <gtest/gtest.h>

#include "buffer/buffer_testing.h"
#include "buffer/heap_memory.h"
#include "buffer/seal.h"
#include "buffer/work.h"
#include "crypto/nonce_ledger.h"

namespace weir::buffer {
namespace {

class Open : public testing::Test {
 protected:
  void SetUp() override {
    crypto::forget_recorded_nonces();  // each test begins with the same key
    text_ = random_bytes(random_, 3 * kRecordBytes + 100);
    sealed_ = seal(memory_, text_, random_key(random_), thread_key());
  }
  void TearDown() override {
    detail::unpin(sealed_);
    EXPECT_EQ(memory_.taken_bytes(), 0u);
  }
  ByteSpan text(std::uint64_t record) const {
    const std::size_t begin = record * kRecordBytes;
    return ByteSpan{text_}.subspan(begin, std::min<std::size_t>(kRecordBytes, text_.size() - begin));
  }
  static bool equal(ByteSpan left, ByteSpan right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end());
  }

  HeapMemory memory_{std::uint64_t{64} << 20};
  Random random_{2};
  Bytes text_;
  Sealed* sealed_ = nullptr;
};

TEST_F(Open, RecordByRecordUntilAllIsOpen) {
  Landing* const landing = land(memory_, *sealed_);
  for (std::uint64_t record = 0; record < 4; ++record) {
    EXPECT_FALSE(landing->is_open());
    ASSERT_TRUE(open_next(*landing, thread_key()));
    EXPECT_TRUE(equal({landing->body + record * kRecordBytes, record_length(*landing, record)}, text(record)));
  }
  EXPECT_TRUE(landing->is_open());
  EXPECT_TRUE(open_all(*landing));  // nothing is left to do
  EXPECT_TRUE(equal(landing->whole(), text_));
  detail::unpin(landing);
}

TEST_F(Open, AChunkInTheMiddleOfAPayloadOpensByItself) {
  Landing* const landing = land(memory_, *sealed_, 1, 2);
  EXPECT_EQ(landing->records(), 2u);
  const std::uint64_t before = work.opened_bytes.load();
  EXPECT_TRUE(open_all(*landing));
  EXPECT_EQ(work.opened_bytes.load() - before, 2 * kRecordBytes);
  EXPECT_TRUE(equal({landing->body, kRecordBytes}, text(1)));
  EXPECT_TRUE(equal({landing->body + kRecordBytes, kRecordBytes}, text(2)));
  detail::unpin(landing);
}

TEST_F(Open, ATamperedRecordIsRefusedZeroedAndNamed) {
  const auto expect_refused = [&](std::uint64_t record, auto&& tamper) {
    Landing* const landing = land(memory_, *sealed_);
    tamper(*landing);
    EXPECT_FALSE(open_all(*landing));
    EXPECT_EQ(landing->failed_record, record);
    EXPECT_EQ(landing->opened_records, record);
    EXPECT_FALSE(landing->is_open());
    EXPECT_TRUE(all_zero({landing->body + record * kRecordBytes, record_length(*landing, record)}));
    EXPECT_FALSE(open_next(*landing, thread_key()));  // and it stays refused
    EXPECT_FALSE(open_all(*landing));
    EXPECT_EQ(landing->opened_records, record);
    detail::unpin(landing);
  };
  expect_refused(0, [](Landing& l) { l.body[0] ^= std::byte{1}; });
  expect_refused(2, [](Landing& l) { l.body[2 * kRecordBytes + 77] ^= std::byte{0x80}; });
  expect_refused(3, [](Landing& l) { l.body[l.bytes - 1] ^= std::byte{1}; });
  expect_refused(1, [](Landing& l) { l.tags[16] ^= std::byte{1}; });
  expect_refused(0, [](Landing& l) { l.key[0] ^= std::byte{1}; });
  expect_refused(0, [](Landing& l) { l.payload_bytes += 1; });
  expect_refused(0, [](Landing& l) { l.first_record += 1; });
}

TEST_F(Open, RecordsThatChangedPlacesAreRefused) {
  Landing* const landing = land(memory_, *sealed_);
  std::swap_ranges(landing->body, landing->body + kRecordBytes, landing->body + kRecordBytes);
  std::swap_ranges(landing->tags, landing->tags + 16, landing->tags + 16);
  EXPECT_FALSE(open_all(*landing));
  EXPECT_EQ(landing->failed_record, 0u);
  detail::unpin(landing);
}

TEST_F(Open, APayloadCutAtARecordIsRefused) {
  Landing* const landing = land(memory_, *sealed_);
  landing->bytes = 3 * kRecordBytes;
  landing->payload_bytes = landing->bytes;
  EXPECT_FALSE(open_all(*landing));
  detail::unpin(landing);
}

TEST_F(Open, IntoAnotherPlaceInAnyOrderKeepsTheCiphertext) {
  Landing* const landing = land(memory_, *sealed_);
  const Bytes before(landing->body, landing->body + landing->bytes);
  for (const std::uint64_t record : {3, 0, 2, 1, 0}) {
    Bytes to(record_length(*landing, record));
    ASSERT_TRUE(open_into(*landing, record, to.data()));
    EXPECT_TRUE(equal(to, text(record)));
  }
  EXPECT_TRUE(equal({landing->body, landing->bytes}, before));
  EXPECT_EQ(landing->opened_records, 0u);
  detail::unpin(landing);
}

TEST_F(Open, IntoAnotherPlaceATamperedRecordGivesZeros) {
  Landing* const landing = land(memory_, *sealed_);
  landing->body[kRecordBytes] ^= std::byte{1};
  Bytes to(kRecordBytes, std::byte{0xff});
  ASSERT_TRUE(open_into(*landing, 0, to.data()));
  EXPECT_FALSE(open_into(*landing, 1, to.data()));
  EXPECT_TRUE(all_zero(to));
  EXPECT_EQ(landing->failed_record, 1u);
  to.assign(kRecordBytes, std::byte{0xff});
  EXPECT_FALSE(open_into(*landing, 2, to.data()));
  EXPECT_TRUE(all_zero(to));
  detail::unpin(landing);
}

TEST_F(Open, NothingIsOpenAtOnce) {
  Landing* const landing = make_landing(memory_, 0);
  ASSERT_NE(landing, nullptr);
  EXPECT_TRUE(landing->is_open());
  EXPECT_TRUE(open_all(*landing));
  detail::unpin(landing);
}

TEST_F(Open, AdoptedDataIsLeftAsItIsIfItIsWhatItsBindingSays) {
  Landing* const landing = land(memory_, *sealed_);
  landing->adopted = true;
  landing->binding_offset = 1'000;
  landing->binding_bytes = 64;
  landing->key = binding_digest({landing->body + 1'000, 64});
  const Bytes before(landing->body, landing->body + landing->bytes);
  const std::uint64_t looked_at = thread_work.bindings;
  EXPECT_FALSE(landing->is_open()) << "nobody has looked at it";
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(open_all(*landing));
  EXPECT_TRUE(landing->is_open());
  EXPECT_EQ(thread_work.bindings - looked_at, 1u);
  EXPECT_TRUE(equal({landing->body, landing->bytes}, before));
  detail::unpin(landing);
}

TEST_F(Open, OtherBytesInPlaceOfAdoptedDatasBindingAreRefused) {
  Landing* const landing = land(memory_, *sealed_);
  landing->adopted = true;
  landing->binding_offset = 1'000;
  landing->binding_bytes = 64;
  landing->key = binding_digest({landing->body + 1'000, 64});
  landing->body[1'063] ^= std::byte{1};
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(open_all(*landing));
    EXPECT_FALSE(landing->is_open());
    EXPECT_TRUE(all_zero({landing->body, landing->bytes}));
  }
  detail::unpin(landing);
}

TEST_F(Open, ABindingOutsideOfTheMessageIsRefused) {
  Landing* const landing = land(memory_, *sealed_);
  landing->adopted = true;
  landing->key = binding_digest({});
  landing->binding_offset = landing->bytes + 1;
  EXPECT_FALSE(open_all(*landing));
  detail::unpin(landing);
}

struct Recorded final : Returns {
  void on_returned(const Landing& landing) noexcept override {
    total += landing.charged_bytes;
    last_purse = landing.purse;
  }
  std::uint64_t total = 0;
  std::uint32_t last_purse = 0;
};

TEST(Landing, HeaderAndBodyAreOneRunOfBytesAndTheLastHolderReturnsTheCharge) {
  HeapMemory memory{1 << 20};
  Recorded returns;
  Landing* const landing = make_landing(memory, 5'000, kSmallestRecordBytes);
  ASSERT_NE(landing, nullptr);
  landing->bytes = 5'000;
  landing->header_bytes = kLargestHeaderBytes;
  std::memset(landing->body - kLargestHeaderBytes, 1, kLargestHeaderBytes);
  std::memset(landing->body, 2, 5'000);
  std::memset(landing->tags, 3, 2 * crypto::kTagBytes);
  EXPECT_EQ(landing->capacity, 5'000u);  // the object is still whole
  EXPECT_EQ(landing->whole().size(), 6'024u);
  EXPECT_EQ(landing->whole()[1'023], std::byte{1});
  EXPECT_EQ(landing->whole()[1'024], std::byte{2});
  EXPECT_EQ(landing->whole()[6'023], std::byte{2});
  landing->returns = &returns;
  landing->charged_bytes = 77;
  landing->purse = 4;
  detail::pin(landing);
  detail::unpin(landing);
  EXPECT_EQ(returns.total, 0u);
  detail::unpin(landing);
  EXPECT_EQ(returns.total, 77u);
  EXPECT_EQ(returns.last_purse, 4u);
  EXPECT_EQ(memory.taken_bytes(), 0u);
}

TEST(Landing, AnyNumberOfAPeerIsAnsweredWithALandingOrNone) {
  HeapMemory memory{1 << 20};
  for (const std::uint64_t capacity : {std::uint64_t{1} << 21, kLargestPayloadBytes, ~std::uint64_t{0}}) {
    EXPECT_EQ(make_landing(memory, capacity), nullptr);
  }
  for (const std::uint32_t record_bytes : {0u, 1u, kSmallestRecordBytes - 1, kLargestRecordBytes + 1, ~0u}) {
    EXPECT_EQ(make_landing(memory, 100, record_bytes), nullptr);
  }
  EXPECT_EQ(memory.taken_bytes(), 0u);
}

}  // namespace
}  // namespace weir::buffer
