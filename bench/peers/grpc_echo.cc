#include "grpc_echo.h"

#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <fstream>
#include <sstream>

namespace weir::bench {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) fail("cannot read " + path);
  return content.str();
}

}  // namespace

grpc::ByteBuffer make_body(const Header& header, std::size_t size) {
  grpc::Slice slice(size);
  std::memcpy(const_cast<std::uint8_t*>(slice.begin()), &header, sizeof(header));
  return grpc::ByteBuffer(&slice, 1);
}

bool read_header(const grpc::ByteBuffer& body, Header* header) {
  std::vector<grpc::Slice> slices;
  if (!body.Dump(&slices).ok()) return false;
  std::size_t have = 0;
  for (const grpc::Slice& slice : slices) {
    std::size_t bytes = std::min(slice.size(), sizeof(*header) - have);
    std::memcpy(reinterpret_cast<std::byte*>(header) + have, slice.begin(), bytes);
    have += bytes;
    if (have == sizeof(*header)) return true;
  }
  return false;
}

grpc::Status answer(const grpc::ByteBuffer& request, grpc::ByteBuffer* reply) {
  Header header;
  if (!read_header(request, &header) || header.reply_bytes < sizeof(header) || header.reply_bytes > kMaximumMessage) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "malformed request"};
  }
  *reply = make_body(header, header.reply_bytes);
  return grpc::Status::OK;
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const std::string& directory) {
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back({read_file(directory + "/key.pem"), read_file(directory + "/certificate.pem")});
  return grpc::SslServerCredentials(tls);
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const std::string& directory) {
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = read_file(directory + "/certificate.pem");
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(tls), arguments);
}

EchoService::EchoService(bool callback) {
  AddMethod(new grpc::internal::RpcServiceMethod(kEchoMethod, grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
  if (!callback) {
    MarkMethodRaw(0);
    return;
  }
  MarkMethodRawCallback(
      0, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
             [](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
               grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
               reactor->Finish(answer(*request, reply));
               return reactor;
             }));
}

}  // namespace weir::bench
