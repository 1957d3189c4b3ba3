// Two engines with a book of credentials each. The test is the one who shakes hands.
#pragma once

#include <gtest/gtest.h>

#include "engine/book_testing.h"
#include "engine/engine_testing.h"

namespace weir::engine::testing {

class IdentityMode : public ::testing::Test {
 protected:
  EngineConfig config(bool accepts, Book& book, std::uint8_t incarnation) {
    EngineConfig config = test_config(accepts, accepts ? 2222 : 1111);
    config.credentials = &book;
    config.secret.reset();
    config.signer = kTestSigner;
    config.incarnation.fill(static_cast<std::byte>(incarnation));
    return config;
  }

  Agreed agree(std::uint8_t number) { return testing::agree(number, pair.addresses[1]); }
  void hand_out(const Agreed& agreed, bool to_server = true) {
    if (to_server) server_book.known[agreed.ours.id] = agreed.theirs;
    pair.client().install(pair.peer, agreed.ours, pair.now);
  }
  bool is_wanted(bool suspects) {
    Wanted wanted;
    if (!pair.client().take_wanted(wanted)) return false;
    EXPECT_EQ(wanted.peer, pair.peer);
    EXPECT_EQ(wanted.suspects, suspects);
    return true;
  }
  // When it became true. A step ends by moving time on, so this is not the time after it.
  template <class Done>
  Instant when(Done&& done) {
    Instant last = pair.now;
    EXPECT_TRUE(pair.run_until([&] { return done() || (last = pair.now, false); }));
    return last;
  }
  void restart_server(std::uint8_t incarnation) {
    server_book.known.clear();
    pair.configs[1].incarnation.fill(static_cast<std::byte>(incarnation));
    pair.start(1);
    pair.serve_echo();
  }
  void call_and_expect_echo() {
    TestCall call;
    pair.call(call, "echo", "body");
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    EXPECT_EQ(call.reply, "body");
  }

  Book client_book, server_book;
  Pair pair{config(false, client_book, 1), config(true, server_book, 2)};
};

}  // namespace weir::engine::testing
