// Puts a file into a file of a peer's, and goes on where it stopped if that fails. Both sides in one process; between
// machines only the addresses change.
//
//   put_file [FILE]     without one: the program itself
#include <stdlib.h>  // mkdtemp
#include <weir/weir.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

using namespace std::chrono_literals;

namespace {

constexpr int kAttempts = 3;

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

weir::Task<weir::Result<weir::PutReport>> put_file(weir::Pool pool, weir::Peer to, std::filesystem::path path) {
  // Read straight into memory that is sealed in place; it waits while the pool's memory is used up.
  weir::Result<weir::Buffer> buffer = co_await pool.allocate(std::filesystem::file_size(path));
  if (!buffer) co_return std::unexpected(buffer.error());
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(buffer->span().data()), static_cast<std::streamsize>(buffer->size()));
  if (!file) co_return std::unexpected(weir::Error(weir::Code::system, "the file cannot be read"));
  const weir::Payload payload = pool.seal(std::move(*buffer));

  weir::PutReport report;  // says how far it got, also if it fails
  weir::Result<weir::PutReport> put;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto attempted = to.put("upload", payload,
                            {.resume_at = report.acknowledged_bytes, .deadline = 30s, .sync = true, .report = &report});
    put = co_await std::move(attempted);
    if (put) break;
    std::fprintf(stderr, "stopped at %llu bytes: %s\n", static_cast<unsigned long long>(report.acknowledged_bytes),
                 put.error().to_string().c_str());
  }
  co_return put;
}

}  // namespace

int main(int, char** arguments) {
  const std::filesystem::path source = arguments[1] != nullptr ? arguments[1] : arguments[0];
  std::string folder = (std::filesystem::temp_directory_path() / "put-file-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("mkdtemp");
    return 1;
  }
  const std::filesystem::path target = std::filesystem::path(folder) / "copy";

  // The server: gives a file a name that peers may put to.
  weir::Pool server = weir::Pool::open({.listen = "127.0.0.1:0", .identity = weir::Identity::development()}).value();
  server.place("upload", weir::Placement::file(target.string(), {.access = weir::Access::put_only, .create = true}))
      .value();

  weir::Pool client = weir::Pool::open({.identity = weir::Identity::development()}).value();
  weir::Result<weir::PutReport> put = client.run(put_file(client, client.peer(server.listen_address()), source));
  server.unplace("upload").value();
  const bool is_same = put && read_all(source) == read_all(target);
  std::filesystem::remove_all(folder);
  if (!put) {
    std::fprintf(stderr, "%s\n", put.error().to_string().c_str());
    return 1;
  }
  std::printf("put %llu bytes: %s\n", static_cast<unsigned long long>(put->acknowledged_bytes),
              is_same ? "the copy is the same" : "the copy differs");
  return is_same ? 0 : 1;
}
