// What the pool's tests share: two pools on loopback with one secret.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "weir/weir.h"

namespace weir::testing {

inline constexpr const char* kSecret = "a secret that only tests know";

inline Config server_config(int workers) {
  return {.listen = "127.0.0.1:0", .secret = kSecret, .name = "server", .workers = workers};
}

inline Config client_config(int workers) { return {.secret = kSecret, .name = "client", .workers = workers}; }

inline Pool open(Config config) {
  Result<Pool> pool = Pool::open(std::move(config));
  if (!pool) {
    ADD_FAILURE() << pool.error().to_string();
    std::abort();
  }
  return std::move(*pool);
}

inline void serve_echo(Pool& pool) {
  EXPECT_TRUE(
      pool.serve_inline("echo", [](InlineRequest& request) { request.reply(request.body(), request.header()); }));
}

// Waits for something that another thread will make true; the test's own time limit ends it otherwise.
inline void await(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

inline std::string text_of(const Result<Reply>& result) {
  return result ? std::string(result->text()) : result.error().to_string();
}

}  // namespace weir::testing
