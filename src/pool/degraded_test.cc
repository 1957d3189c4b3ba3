// What the system refuses makes a pool slower, is told as an event, and stops nothing. Whoever runs the tests may have
// every right: this program stands between the pool and the system instead.
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "pool/pool_testing.h"

namespace {
std::atomic<bool> is_refusing{false};
}  // namespace

// These take precedence over the C library's.
extern "C" int setsockopt(int descriptor, int level, int option, const void* value, socklen_t size) noexcept {
  if (is_refusing && level == SOL_SOCKET && (option == SO_RCVBUFFORCE || option == SO_SNDBUFFORCE)) {
    errno = EPERM;
    return -1;
  }
  return static_cast<int>(syscall(SYS_setsockopt, descriptor, level, option, value, size));
}

extern "C" int pthread_setaffinity_np(pthread_t, std::size_t, const cpu_set_t*) noexcept {
  return is_refusing ? EINVAL : 0;
}

namespace weir {
namespace {

using testing::client_config;
using testing::open;
using testing::serve_echo;
using testing::server_config;
using testing::text_of;

struct Watch : Subscriber {
  void on(const event::Degraded& e) override {
    std::lock_guard lock(mutex);
    (e.what == "socket buffers" ? buffers : e.what == "worker pinning" ? pinning : others).emplace_back(e.sentence);
  }
  std::mutex mutex;
  std::vector<std::string> buffers, pinning, others;
};

class Degraded : public ::testing::Test {
 protected:
  void TearDown() override { is_refusing = false; }

  // Opens it, makes a call to it, and closes it: after that nothing more is told.
  void serve_one_call(Config config) {
    config.subscriber = watch_;
    Pool server = open(std::move(config));
    serve_echo(server);
    Pool client = open(client_config(1));
    EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "works").get()), "works");
    counted_ = server.counters()[0].degradations;
    limits_ = server.limits();
    EXPECT_TRUE(server.close());
  }

  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
  std::uint64_t counted_ = 0;
  std::string limits_;
};

TEST_F(Degraded, ClampedSocketBuffersAreToldOnceAndCallsWork) {
  is_refusing = true;
  Config config = server_config(1);
  config.socket_buffer_bytes = std::size_t{1} << 30;
  serve_one_call(std::move(config));
  ASSERT_EQ(watch_->buffers.size(), 1u);
  EXPECT_NE(watch_->buffers[0].find("sysctl -w net.core.rmem_max=1073741824 net.core.wmem_max=1073741824"),
            std::string::npos)
      << watch_->buffers[0];
  EXPECT_NE(limits_.find("socket buffers: " + watch_->buffers[0]), std::string::npos) << limits_;
  EXPECT_EQ(counted_, 1u);
  EXPECT_TRUE(watch_->pinning.empty());
  EXPECT_TRUE(watch_->others.empty());
}

TEST_F(Degraded, ARefusedPlaceIsToldOnceAndCallsWork) {
  is_refusing = true;
  Config config = server_config(1);
  config.socket_buffer_bytes = 64 * 1024;
  config.places = {{.core = 0}};
  serve_one_call(std::move(config));
  ASSERT_EQ(watch_->pinning.size(), 1u);
  EXPECT_NE(watch_->pinning[0].find("core"), std::string::npos) << watch_->pinning[0];
  EXPECT_TRUE(watch_->buffers.empty());
  EXPECT_TRUE(watch_->others.empty());
}

TEST_F(Degraded, NothingIsToldWhereNothingWasRefused) {
  Config config = server_config(1);
  config.socket_buffer_bytes = 64 * 1024;
  serve_one_call(std::move(config));
  EXPECT_TRUE(watch_->buffers.empty());
  EXPECT_TRUE(watch_->pinning.empty());
  EXPECT_TRUE(watch_->others.empty());
  EXPECT_EQ(counted_, 0u);
}

}  // namespace
}  // namespace weir
