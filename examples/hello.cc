// A server and a client, encrypted, in one process. Between two machines only the addresses change.
#include <weir/weir.h>

#include <chrono>
#include <cstdio>
#include <string>

weir::Reply greet(weir::Request request) { return weir::Reply("Hello, " + std::string(request.text()) + "!"); }

int main() {
  using namespace std::chrono_literals;

  // The server: says where it listens, and what it serves.
  weir::Pool server = weir::Pool::open({.listen = "127.0.0.1:0", .identity = weir::Identity::development()}).value();
  server.serve("greet", greet).value();

  // The client: names the server by its address, and calls.
  weir::Pool client = weir::Pool::open({.identity = weir::Identity::development()}).value();
  weir::Peer peer = client.peer(server.listen_address());
  weir::Result<weir::Reply> reply = peer.unary("greet", "world", {.deadline = 5s}).get();
  if (!reply) {
    std::fprintf(stderr, "%s\n", reply.error().to_string().c_str());
    return 1;
  }
  std::printf("%.*s\n", static_cast<int>(reply->text().size()), reply->text().data());
  return 0;
}
