// What sealing needs: a key that nothing else has, and memory, of which there may be none.
#include <algorithm>
#include <future>
#include <optional>
#include <string>

#include "pool/large_testing.h"

namespace weir {
namespace {

using testing::client_config;
using testing::is_same;
using testing::kMiB;
using testing::kRecord;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;
using testing::text_of;

TEST(LargeSeal, TwoSealsOfTheSameBytesHaveNeitherKeyNorCiphertextInCommon) {
  Pool pool = open(client_config(1));
  const std::string text = pattern(3 * kRecord + 5);
  const Payload one = payload_of(pool, text), other = payload_of(pool, text);
  EXPECT_NE(one.sealed()->key, other.sealed()->key);
  for (std::uint64_t at = 0; at < text.size(); at += kRecord) {
    const Bytes first = one.sealed()->at(at), second = other.sealed()->at(at);
    ASSERT_EQ(first.size(), second.size());
    EXPECT_FALSE(std::equal(first.begin(), first.end(), second.begin())) << at;
    const std::byte* const tags[] = {one.sealed()->tag_of(at / kRecord), other.sealed()->tag_of(at / kRecord)};
    EXPECT_FALSE(std::equal(tags[0], tags[0] + 16, tags[1])) << at;
  }
}

// Nobody waits behind an answer of an inline handler or a Responder: without memory for it, it says so.
TEST(LargeSeal, AnswersThatNobodyWaitsBehindAreOverloadedWithoutBufferMemory) {
  Config listening = server_config(1);
  listening.limits.buffer_bytes = 2 * kMiB;
  Pool server = open(listening), client = open(client_config(1));
  const std::string text = pattern(kMiB);
  ASSERT_TRUE(server.serve_inline("inline", [&](InlineRequest& request) { request.reply(text); }));
  std::promise<Responder>* kept = nullptr;
  ASSERT_TRUE(server.serve_inline("deferred", [&](InlineRequest& request) { kept->set_value(request.defer()); }));
  ASSERT_TRUE(server.serve_inline("small", [&](InlineRequest& request) { request.reply("small"); }));
  const Payload sealed = payload_of(client, text);
  ASSERT_TRUE(server.serve("sealed", [&](Request) { return Reply{sealed}; }));
  const Peer to = client.peer(server.listen_address());
  const auto deferred = [&] {
    std::promise<Responder> promise;
    kept = &promise;
    Call call = to.unary("deferred", "");
    promise.get_future().get().reply(text);
    return call.get();
  };
  std::optional<Buffer> held = server.allocate(kMiB + kMiB / 2).get().value();
  for (const bool is_deferred : {false, true}) {
    const Result<Reply> refused = is_deferred ? deferred() : to.unary("inline", "").get();
    ASSERT_FALSE(refused) << is_deferred;
    EXPECT_EQ(refused.error().code(), Code::overloaded) << refused.error().to_string();
    EXPECT_TRUE(refused.error().may_have_run()) << is_deferred;
  }
  // All else goes on.
  EXPECT_EQ(text_of(to.unary("small", "").get()), "small");
  const Result<Reply> given = to.unary("sealed", "").get();
  EXPECT_TRUE(given && is_same(given->text(), text));
  held.reset();
  for (const bool is_deferred : {false, true}) {
    Result<Reply> reply = std::unexpected(Error(Code::overloaded, ""));
    testing::await([&] {  // the one before holds its memory until its caller has said that it is there
      reply = is_deferred ? deferred() : to.unary("inline", "").get();
      return reply || reply.error().code() != Code::overloaded;
    });
    ASSERT_TRUE(reply) << reply.error().to_string();
    EXPECT_TRUE(is_same(reply->text(), text)) << is_deferred;
  }
}

}  // namespace
}  // namespace weir
