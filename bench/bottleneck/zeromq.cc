// ZeroMQ's contestant in bench/bottleneck: --peers ROUTER sockets served by one thread, and a DEALER socket to each of
// them. One I/O thread on each side, not encrypted.
#include <zmq.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "../peers/tcp_congestion.h"
#include "burst.h"

namespace weir::bench {
namespace {

constexpr long kLookMs = 100;  // how soon the serving thread sees that it shall end

[[noreturn]] void fail_with_zeromq(const std::string& what) { fail(what + ": " + zmq_strerror(zmq_errno())); }

// A context and the sockets of one kind in it.
class Sockets {
 public:
  Sockets() : context_(zmq_ctx_new()) {
    if (context_ == nullptr) fail_with_zeromq("zmq_ctx_new");
    zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, zmq_ctx_get(context_, ZMQ_SOCKET_LIMIT));
  }
  ~Sockets() {
    for (const zmq_pollitem_t& item : items_) zmq_close(item.socket);
    zmq_ctx_term(context_);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  void* add(int type) {
    void* socket = zmq_socket(context_, type);
    if (socket == nullptr) fail_with_zeromq("zmq_socket");
    const int unlimited = 0;  // a round is the limit
    const int at_once = 0;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &unlimited, sizeof(unlimited));
    zmq_setsockopt(socket, ZMQ_RCVHWM, &unlimited, sizeof(unlimited));
    zmq_setsockopt(socket, ZMQ_LINGER, &at_once, sizeof(at_once));
    items_.push_back({.socket = socket, .fd = 0, .events = ZMQ_POLLIN, .revents = 0});
    return socket;
  }

  void* at(std::size_t index) const { return items_[index % items_.size()].socket; }

  // Calls `receive(socket)` until it returns false, for each socket that has something.
  template <class Receive>
  void poll(long milliseconds, Receive receive) {
    const int ready = zmq_poll(items_.data(), static_cast<int>(items_.size()), milliseconds);
    if (ready < 0 && zmq_errno() != EINTR) fail_with_zeromq("zmq_poll");
    if (ready <= 0) return;
    for (const zmq_pollitem_t& item : items_) {
      if ((item.revents & ZMQ_POLLIN) == 0) continue;
      while (receive(item.socket)) {
      }
    }
  }

 private:
  void* context_;
  std::vector<zmq_pollitem_t> items_;
};

// False: nothing is there.
bool receive(void* socket, zmq_msg_t* message) {
  zmq_msg_init(message);
  if (zmq_msg_recv(message, socket, ZMQ_DONTWAIT) >= 0) return true;
  if (zmq_errno() != EAGAIN) fail_with_zeromq("receive");
  return false;
}

void send(void* socket, std::size_t bytes) {
  zmq_msg_t message;
  zmq_msg_init_size(&message, bytes);
  std::memset(zmq_msg_data(&message), 'b', bytes);
  if (zmq_msg_send(&message, socket, 0) < 0) fail_with_zeromq("send");
}

void serve(const Burst& burst) {
  Sockets sockets;
  for (unsigned k = 0; k < burst.peers; ++k) {
    if (zmq_bind(sockets.add(ZMQ_ROUTER), ("tcp://" + burst.address_of(k)).c_str()) != 0) {
      fail_with_zeromq("bind " + burst.address_of(k));
    }
  }
  std::atomic<bool> ends = false;
  std::thread thread([&] {
    while (!ends.load(std::memory_order_relaxed)) {  // nothing else is published with it
      sockets.poll(kLookMs, [&](void* socket) {
        zmq_msg_t identity, request;
        if (!receive(socket, &identity)) return false;
        if (!receive(socket, &request)) fail("a message without a body");
        zmq_msg_close(&request);
        if (zmq_msg_send(&identity, socket, ZMQ_SNDMORE) < 0) fail_with_zeromq("send");
        send(socket, burst.options.reply_bytes);
        return true;
      });
    }
  });
  answer_as_server();
  ends.store(true, std::memory_order_relaxed);
  thread.join();
}

class Client {
 public:
  explicit Client(const Burst& burst) : burst_(burst) {
    for (unsigned k = 0; k < burst.peers; ++k) {
      if (zmq_connect(sockets_.add(ZMQ_DEALER), ("tcp://" + burst.address_of(k)).c_str()) != 0) {
        fail_with_zeromq("connect " + burst.address_of(k));
      }
    }
  }

  Round make_round() {
    Round round;
    std::uint64_t outstanding = burst_.options.window;
    round.begin_ns = now_ns();
    const std::uint64_t deadline_ns = round.begin_ns + static_cast<std::uint64_t>(burst_.deadline().count());
    for (std::size_t i = 0; i < burst_.options.window; ++i) send(sockets_.at(i), burst_.options.request_bytes);
    while (outstanding > 0 && now_ns() < deadline_ns) {
      sockets_.poll(kLookMs, [&](void* socket) {
        zmq_msg_t reply;
        if (!receive(socket, &reply)) return false;
        const bool good = zmq_msg_size(&reply) == burst_.options.reply_bytes;
        zmq_msg_close(&reply);
        if (good) {
          round.count_success();
        } else {
          round.count_failure("a reply of the wrong size");
        }
        --outstanding;
        return outstanding > 0;
      });
    }
    for (; outstanding > 0; --outstanding) round.count_failure("the deadline passed");
    round.end_ns = now_ns();
    return round;
  }

 private:
  const Burst& burst_;
  Sockets sockets_;
};

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  const Burst burst(argument_count, arguments, {});
  if (burst.options.is_server) {
    serve(burst);
  } else {
    Client client(burst);
    answer_as_client([&] { return client.make_round(); });
  }
  return 0;
}
