// A program outside the tree, against the installed library: one call there and back.
#include <weir/weir.h>

#include <cstdio>

int main() {
  const char* secret = "a secret for this program alone";
  auto server = weir::Pool::open({.listen = "127.0.0.1:0", .secret = secret});
  auto client = weir::Pool::open({.secret = secret, .workers = 0});
  if (!server || !client) return 1;
  if (!server->serve_inline("echo", [](weir::InlineRequest& request) { request.reply(request.body()); })) return 1;
  const auto reply = client->peer(server->listen_address()).unary("echo", "there and back").get();
  if (!reply) {
    std::fprintf(stderr, "%s\n", reply.error().to_string().c_str());
    return 1;
  }
  return reply->text() == "there and back" ? 0 : 1;
}
