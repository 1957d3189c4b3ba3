// gRPC's contestant in bench/bottleneck: one server with --peers ports, in its callback style; one client with a
// channel to each of them and one completion queue.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../peers/certificate.h"
#include "../peers/grpc_echo.h"
#include "../peers/tcp_congestion.h"
#include "burst.h"

namespace weir::bench {
namespace {

struct Call {
  std::optional<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
};

void serve(const Burst& burst, const std::string& directory) {
  // Of several servers of one run the first makes the certificate.
  if (!std::filesystem::exists(directory + "/certificate.pem")) write_certificate(directory);
  EchoService service(true);
  grpc::ServerBuilder builder;
  std::vector<int> ports(burst.peers);
  for (unsigned k = 0; k < burst.peers; ++k) {
    builder.AddListeningPort(burst.address_of(k), server_credentials(directory), &ports[k]);
  }
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) fail("cannot listen at " + burst.options.address);
  answer_as_server();
  server->Shutdown(std::chrono::system_clock::now());
}

class Client {
 public:
  Client(const Burst& burst, const std::string& directory) : burst_(burst), calls_(burst.options.window) {
    for (unsigned k = 0; k < burst.peers; ++k) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(make_channel(burst.address_of(k), directory)));
    }
  }

  Round make_round() {
    Round round;
    const Options& options = burst_.options;
    round.begin_ns = now_ns();
    const auto deadline = std::chrono::system_clock::now() + burst_.deadline();
    const Header header{.slot = 0, .generation = 0, .reply_bytes = options.reply_bytes};
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      Call& call = calls_[i];
      call.reader.reset();
      call.context.emplace();
      call.context->set_deadline(deadline);
      call.reply.Clear();
      call.reader = stubs_[i % stubs_.size()]->PrepareUnaryCall(&*call.context, kEchoMethod,
                                                                make_body(header, options.request_bytes), &queue_);
      call.reader->StartCall();
      call.reader->Finish(&call.reply, &call.status, &call);
    }
    for (std::size_t left = calls_.size(); left > 0; --left) {
      void* tag = nullptr;
      bool ok = false;
      if (!queue_.Next(&tag, &ok)) fail("the completion queue ended");
      const Call& call = *static_cast<Call*>(tag);
      if (ok && call.status.ok() && call.reply.Length() == options.reply_bytes) {
        round.count_success();
      } else {
        round.count_failure(call.status.ok() ? "a reply of the wrong size" : call.status.error_message());
      }
    }
    round.end_ns = now_ns();
    return round;
  }

 private:
  const Burst& burst_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<Call> calls_;
};

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  const Burst burst(argument_count, arguments, {"certificate"});
  const std::string directory = burst.options.other("certificate", "");
  if (directory.empty()) fail("--certificate needs the directory where server and client meet");
  if (burst.options.is_server) {
    serve(burst, directory);
  } else {
    Client client(burst, directory);
    answer_as_client([&] { return client.make_round(); });
  }
  return 0;
}
