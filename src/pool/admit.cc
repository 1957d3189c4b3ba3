// Where a large request goes, or why it is refused: ServeOptions::admit, on the worker, before any data flows.
#include <exception>
#include <string>
#include <utility>

#include "pool/post.h"
#include "worker/thread_context.h"

namespace weir::pool {
namespace {

// What admit() said, in the engine's terms.
Result<engine::Route> route_of(Route&& route) {
  if (route.method.empty()) return engine::Route{.numa_node = route.numa_node};
  if (is_reserved(route.method)) {
    return std::unexpected(Error(Code::invalid_argument, "the request was routed there to the method \"" +
                                                             route.method + "\", which is the library's own"));
  }
  const std::uint64_t id = Method(route.method).id();
  return engine::Route{.method = id, .name = std::move(route.method), .numa_node = route.numa_node};
}

std::unexpected<Error> refuse_thrown(const MethodEntry& method, const char* text) {
  return std::unexpected(Error(Code::application, std::string(method.post->gate()->tell_thrown(method.name, text))));
}

}  // namespace

Result<engine::Route> Post::admit_large(void* context, const transfer::IncomingTransfer& transfer,
                                        const engine::Opening& opening) {
  const auto& method = *static_cast<MethodEntry*>(context);
  const LargeRequest request{.method = method.name,
                             .pattern = opening.pattern,
                             .header = opening.header,
                             .bytes = opening.bytes,
                             .priority = transfer.priority,
                             .caller = transfer.caller->shown()};
  const worker::DepthScope depth(static_cast<std::uint8_t>(transfer.depth + 1));
  try {
    Result<Route> admitted = (*method.admit)(request);
    if (admitted) return route_of(*std::move(admitted));
    if (admitted.error().code() != Code{}) return std::unexpected(std::move(admitted).error());
    return std::unexpected(Error(Code::application, std::string(admitted.error().message())));
  } catch (const std::exception& thrown) {
    return refuse_thrown(method, thrown.what());
  } catch (...) {
    return refuse_thrown(method, kNoStandardException);
  }
}

}  // namespace weir::pool
