// RemoteFiles: the directory that `weir serve-files` serves at a peer. Blocks its callers' threads; believes nothing
// that the peer says about names and sizes.
#pragma once

#include "apps/weir/file_message.h"
#include "apps/weir/files.h"
#include "weir/pool.h"

namespace weir::command {

class RemoteFiles : public Files {
 public:
  explicit RemoteFiles(Peer peer) : peer_(std::move(peer)) {}

  Result<FileInfo> look(const std::string& path) override;
  Result<Listing> list(const std::string& path, const std::string& after) override;
  Result<void> read(const FileVersion& file, std::uint64_t block, std::span<std::byte> into) override;
  Result<std::vector<Digest>> sums(const FileVersion& file, Stage stage, BlockRange range) override;
  Result<void> make_directory(const std::string& path, std::uint32_t mode) override;
  Result<std::uint64_t> begin(const FileVersion& file) override;
  Result<void> write(const FileVersion& file, std::uint64_t block, Bytes bytes) override;
  Result<void> finish(const FileVersion& file) override;

 private:
  Result<Reply> ask(Method method, Bytes body, std::string_view header = {}) const;
  Result<void> tell(Method method, const FieldWriter& fields) const;

  Peer peer_;
};

}  // namespace weir::command
