// gRPC C++ over TLS: unary calls of raw bytes, one channel. The client drives a completion queue; the server has two
// styles, --style callback and --style async (completion queue). Which is faster depends on the machine and its load,
// so the benchmark compares with both.
//
// --certificate DIR: the server writes a fresh self-signed certificate there before it listens, the client trusts it.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "certificate.h"
#include "grpc_echo.h"
#include "harness.h"
#include "tcp_congestion.h"

namespace weir::bench {
namespace {

constexpr std::size_t kAcceptsPosted = 1024;  // so that a full window never waits for the server to ask for calls

// One accepted call after the other, in the completion-queue style.
class AsyncCall {
 public:
  AsyncCall(EchoService* service, grpc::ServerCompletionQueue* queue) : service_(service), queue_(queue) { accept(); }

  void proceed(bool ok) {
    if (finishing_ || !ok) return accept();
    finishing_ = true;
    grpc::ByteBuffer reply;
    grpc::Status status = answer(request_, &reply);
    if (status.ok()) {
      writer_->Finish(reply, status, this);
    } else {
      writer_->FinishWithError(status, this);
    }
  }

 private:
  void accept() {
    finishing_ = false;
    writer_.reset();
    context_.emplace();
    request_.Clear();
    writer_.emplace(&*context_);
    service_->accept(&*context_, &request_, &*writer_, queue_, this);
  }

  EchoService* service_;
  grpc::ServerCompletionQueue* queue_;
  std::optional<grpc::ServerContext> context_;
  grpc::ByteBuffer request_;
  std::optional<grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>> writer_;
  bool finishing_ = false;
};

[[noreturn]] void serve(const Options& options, const std::string& directory) {
  bool callback = options.other("style", "callback") == "callback";
  write_certificate(directory);
  EchoService service(callback);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.address, server_credentials(directory), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  if (!callback) queue = builder.AddCompletionQueue();
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || port == 0) fail("cannot listen at " + options.address);
  if (callback) {
    server->Wait();
    fail("the server ended");
  }
  std::vector<std::unique_ptr<AsyncCall>> calls;
  for (std::size_t i = 0; i < kAcceptsPosted; i++) {
    calls.push_back(std::make_unique<AsyncCall>(&service, queue.get()));
  }
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) static_cast<AsyncCall*>(tag)->proceed(ok);
  fail("the server ended");
}

struct ClientCall {
  std::uint16_t slot = 0;
  std::uint64_t sent_ns = 0;
  std::optional<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
};

int call(const Options& options, const std::string& directory) {
  auto channel = make_channel(options.address, directory);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(5))) {
    fail("cannot connect to " + options.address);
  }
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  auto measurement = std::make_unique<Measurement>(options);

  auto send = [&](ClientCall* call, std::uint64_t now) {
    call->reader.reset();
    call->context.emplace();
    call->reply.Clear();
    call->sent_ns = now;
    Header header{.slot = call->slot, .generation = 0, .reply_bytes = options.reply_bytes};
    call->reader =
        stub.PrepareUnaryCall(&*call->context, kEchoMethod, make_body(header, options.request_bytes), &queue);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status, call);
  };

  std::vector<ClientCall> calls(options.window);
  for (std::uint32_t slot = 0; slot < options.window; slot++) {
    calls[slot].slot = static_cast<std::uint16_t>(slot);
    send(&calls[slot], now_ns());
  }
  std::uint32_t outstanding = options.window;
  while (outstanding > 0) {
    void* tag = nullptr;
    bool ok = false;
    if (!queue.Next(&tag, &ok)) break;
    auto* call = static_cast<ClientCall*>(tag);
    std::uint64_t now = now_ns();
    if (measurement->is_over(now)) {
      outstanding--;
      continue;
    }
    Header header;
    bool good = ok && call->status.ok() && call->reply.Length() == options.reply_bytes &&
                read_header(call->reply, &header) && header.slot == call->slot;
    measurement->connected(now);
    if (good) {
      measurement->completed(call->sent_ns, now);
    } else {
      measurement->failed();
    }
    send(call, now);
  }
  int code = measurement->print(",\"tcp\":\"" + tcp_congestion_in_use() + "\"");
  queue.Shutdown();
  return code;
}

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  Options options = parse_options(argument_count, arguments, {"certificate", "style"}, kMaximumMessage);
  std::string style = options.other("style", "callback");
  if (style != "async" && style != "callback") fail("--style must be 'async' or 'callback'");
  std::string directory = options.other("certificate", "");
  if (directory.empty()) fail("--certificate needs the directory where server and client meet");
  prepare_process(options);
  if (options.is_server) serve(options, directory);
  return call(options, directory);
}
