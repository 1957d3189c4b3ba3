// The text of an exception that leaves a handler: for the operator, and for callers only if the server says so.
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using testing::client_config;
using testing::open;
using testing::server_config;

class Listener final : public Subscriber {
 public:
  using Subscriber::on;
  void on(const event::HandlerThrew& thrown) override {
    std::lock_guard lock(mutex_);
    heard_.push_back(std::string(thrown.method) + ": " + std::string(thrown.text));
  }
  std::vector<std::string> heard() {
    std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> heard_;
};

constexpr const char* kSecretText = "cannot open /etc/shadow";

// Who serves all kinds of handlers, each of which throws.
struct Server {
  explicit Server(bool sends_text) : pool(open(config(sends_text))) {
    EXPECT_TRUE(pool.serve("task", [](Request) -> Task<Reply> {
      throw std::runtime_error(kSecretText);
      co_return Reply{};
    }));
    EXPECT_TRUE(pool.serve("plain", [](Request) -> Reply { throw std::runtime_error(kSecretText); }));
    EXPECT_TRUE(pool.serve_inline("inline", [](InlineRequest&) { throw std::runtime_error(kSecretText); }));
    EXPECT_TRUE(pool.serve_inline("late", [](InlineRequest& request) {
      request.reply("answered");
      throw std::runtime_error(kSecretText);
    }));
    EXPECT_TRUE(pool.serve_inline("number", [](InlineRequest&) { throw 7; }));
  }
  Config config(bool sends_text) {
    Config config = server_config(1);
    config.subscriber = listener;
    config.send_exception_text = sends_text;
    return config;
  }

  std::shared_ptr<Listener> listener = std::make_shared<Listener>();
  Pool pool;
};

std::string answer_of(Pool& client, const Server& server, const char* method) {
  const Result<Reply> result = client.peer(server.pool.listen_address()).unary(method, "").get();
  if (result) return std::string(result->text());
  EXPECT_EQ(result.error().code(), Code::application);
  EXPECT_TRUE(result.error().may_have_run());
  return std::string(result.error().message());
}

TEST(ExceptionText, IsToldToTheSubscriberAndNotToCallers) {
  Server server(false);
  Pool client = open(client_config(1));
  for (const char* method : {"task", "plain", "inline", "number"}) {
    EXPECT_EQ(answer_of(client, server, method), "the handler threw an exception") << method;
  }
  EXPECT_EQ(answer_of(client, server, "late"), "answered");
  testing::await([&] { return server.pool.counters().at(0).handlers_threw == 5; });
  const std::string text = kSecretText;
  EXPECT_EQ(server.listener->heard(), (std::vector<std::string>{"task: " + text, "plain: " + text, "inline: " + text,
                                                                "number: the handler threw something that is no "
                                                                "std::exception",
                                                                "late: " + text}));
}

TEST(ExceptionText, IsSentIfTheServerSaysSo) {
  Server server(true);
  Pool client = open(client_config(1));
  for (const char* method : {"task", "plain", "inline"}) EXPECT_EQ(answer_of(client, server, method), kSecretText);
  EXPECT_EQ(server.listener->heard().size(), 3u) << "the operator hears of it in any case";
}

}  // namespace
}  // namespace weir
