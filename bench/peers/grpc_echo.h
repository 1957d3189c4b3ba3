// What the gRPC programs share: one unary method of raw bytes that answers with as many bytes as its caller asks for,
// TLS with a certificate in a directory where server and client meet.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/support/async_unary_call.h>

#include <memory>
#include <string>

#include "harness.h"

namespace weir::bench {

constexpr std::uint32_t kMaximumMessage = 1 << 30;
constexpr char kEchoMethod[] = "/weir.bench.Echo/Echo";

grpc::ByteBuffer make_body(const Header& header, std::size_t size);
// False if the body is too short to be one of ours. A large body stays in the pieces that it arrived in.
bool read_header(const grpc::ByteBuffer& body, Header* header);
grpc::Status answer(const grpc::ByteBuffer& request, grpc::ByteBuffer* reply);

// As write_certificate() leaves them in the directory.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const std::string& directory);
std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const std::string& directory);

// What the code generator would write for one unary method of raw bytes.
class EchoService final : public grpc::Service {
 public:
  explicit EchoService(bool callback);  // false: whoever has a completion queue calls accept()

  void accept(grpc::ServerContext* context, grpc::ByteBuffer* request,
              grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>* writer, grpc::ServerCompletionQueue* queue,
              void* tag) {
    RequestAsyncUnary(0, context, request, writer, queue, queue, tag);
  }
};

}  // namespace weir::bench
