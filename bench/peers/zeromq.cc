// ZeroMQ over TCP: a DEALER client and a ROUTER server, one I/O thread each, not encrypted.
#include <zmq.h>

#include <memory>

#include "harness.h"
#include "tcp_congestion.h"

namespace weir::bench {
namespace {

constexpr std::uint32_t kMaximumBurst = 256;  // answers taken before the freed calls are sent again

[[noreturn]] void fail_with_zeromq(const std::string& what) { fail(what + ": " + zmq_strerror(zmq_errno())); }

void* open_socket(void* context, int type) {
  void* socket = zmq_socket(context, type);
  if (socket == nullptr) fail_with_zeromq("zmq_socket");
  int unlimited = 0;  // the client's window is the limit
  int at_once = 0;
  zmq_setsockopt(socket, ZMQ_SNDHWM, &unlimited, sizeof(unlimited));
  zmq_setsockopt(socket, ZMQ_RCVHWM, &unlimited, sizeof(unlimited));
  zmq_setsockopt(socket, ZMQ_LINGER, &at_once, sizeof(at_once));
  return socket;
}

[[noreturn]] void serve(const Options& options) {
  void* socket = open_socket(zmq_ctx_new(), ZMQ_ROUTER);
  if (zmq_bind(socket, ("tcp://" + options.address).c_str()) != 0) fail_with_zeromq("bind " + options.address);
  for (;;) {
    zmq_msg_t identity, request, reply;
    zmq_msg_init(&identity);
    zmq_msg_init(&request);
    if (zmq_msg_recv(&identity, socket, 0) < 0) fail_with_zeromq("receive");
    if (!zmq_msg_more(&identity)) fail("a message without its sender's identity");
    if (zmq_msg_recv(&request, socket, 0) < 0) fail_with_zeromq("receive");
    Header header;
    bool valid = zmq_msg_size(&request) >= sizeof(header) && !zmq_msg_more(&request);
    if (valid) {
      std::memcpy(&header, zmq_msg_data(&request), sizeof(header));
      valid = header.reply_bytes >= sizeof(header) && header.reply_bytes <= kMaximumBody;
    }
    zmq_msg_close(&request);
    if (!valid) fail("a malformed request");
    zmq_msg_init_size(&reply, header.reply_bytes);
    std::memcpy(zmq_msg_data(&reply), &header, sizeof(header));
    if (zmq_msg_send(&identity, socket, ZMQ_SNDMORE) < 0) fail_with_zeromq("send");
    if (zmq_msg_send(&reply, socket, 0) < 0) fail_with_zeromq("send");
  }
}

void send_request(void* socket, const Options& options, std::uint16_t slot) {
  zmq_msg_t request;
  zmq_msg_init_size(&request, options.request_bytes);
  Header header{.slot = slot, .generation = 0, .reply_bytes = options.reply_bytes};
  std::memcpy(zmq_msg_data(&request), &header, sizeof(header));
  if (zmq_msg_send(&request, socket, 0) < 0) fail_with_zeromq("send");
}

int call(const Options& options) {
  void* context = zmq_ctx_new();
  void* socket = open_socket(context, ZMQ_DEALER);
  int timeout_ms = 3000;
  zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms));
  if (zmq_connect(socket, ("tcp://" + options.address).c_str()) != 0) fail_with_zeromq("connect " + options.address);

  auto measurement = std::make_unique<Measurement>(options);
  std::vector<std::uint64_t> sent_ns(options.window);
  std::vector<std::uint16_t> idle;
  idle.reserve(options.window);
  for (std::uint32_t slot = 0; slot < options.window; slot++) idle.push_back(static_cast<std::uint16_t>(slot));
  std::uint64_t now = now_ns();
  while (!measurement->is_over(now)) {
    for (std::uint16_t slot : idle) {
      sent_ns[slot] = now;
      send_request(socket, options, slot);
    }
    idle.clear();
    for (std::uint32_t taken = 0; taken < std::min(kMaximumBurst, options.window); taken++) {
      zmq_msg_t reply;
      zmq_msg_init(&reply);
      if (zmq_msg_recv(&reply, socket, taken == 0 ? 0 : ZMQ_DONTWAIT) < 0) {
        if (taken > 0 && zmq_errno() == EAGAIN) break;
        fail_with_zeromq("no answer from " + options.address);
      }
      if (taken == 0) now = now_ns();
      if (zmq_msg_size(&reply) != options.reply_bytes) fail("a reply of the wrong size");
      Header header;
      std::memcpy(&header, zmq_msg_data(&reply), sizeof(header));
      zmq_msg_close(&reply);
      if (header.slot >= options.window) fail("a reply to a call that was never made");
      measurement->connected(now);
      measurement->completed(sent_ns[header.slot], now);
      idle.push_back(header.slot);
    }
  }
  int code = measurement->print(",\"tcp\":\"" + tcp_congestion_in_use() + "\"");
  zmq_close(socket);
  zmq_ctx_term(context);
  return code;
}

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  Options options = parse_options(argument_count, arguments, {});
  prepare_process(options);
  if (options.is_server) serve(options);
  return call(options);
}
