#include "apps/weir/file_service.h"

#include <algorithm>
#include <utility>

#include "apps/weir/file_message.h"

namespace weir::command {

namespace {

Error malformed() { return {Code::invalid_argument, "the request is not one of this version's"}; }

Error nobody_waits() { return {Code::cancelled, "the caller has gone"}; }

Result<Reply> answer(Result<void> done) {
  if (!done) return std::unexpected(done.error());
  return Reply{};
}

Result<Reply> look(Files& files, const Request& request) {
  FieldReader reader(request.body());
  std::string path = reader.text();
  if (!reader.is_done()) return std::unexpected(malformed());
  Result<FileInfo> info = files.look(path);
  if (!info) return std::unexpected(info.error());
  return Reply{FieldWriter().add(*info).bytes()};
}

Result<Reply> list(Files& files, const Request& request) {
  FieldReader reader(request.body());
  std::string path = reader.text(), after = reader.text();
  if (!reader.is_done()) return std::unexpected(malformed());
  Result<Listing> listing = files.list(path, after);
  if (!listing) return std::unexpected(listing.error());
  FieldWriter fields;
  fields.add(std::uint64_t{listing->has_more}).add(std::uint64_t{listing->entries.size()});
  for (const FileEntry& entry : listing->entries) fields.add(entry.name).add(entry.info);
  return Reply{fields.bytes()};
}

// Into a buffer of the pool, and sealed there: one copy less.
Task<Result<Reply>> read(const Pool* pool, std::shared_ptr<Files> files, Request request, bool is_cancelled) {
  if (is_cancelled) co_return std::unexpected(nobody_waits());
  FieldReader reader(request.body());
  FileVersion file = reader.file();
  std::uint64_t block = reader.number();
  if (!reader.is_done() || block >= blocks_of(file.info.bytes)) co_return std::unexpected(malformed());
  Result<Buffer> buffer = co_await pool->allocate(block_bytes(file.info.bytes, block));
  if (!buffer) co_return std::unexpected(buffer.error());
  if (auto got = files->read(file, block, buffer->span()); !got) co_return std::unexpected(got.error());
  co_return Reply{pool->seal(std::move(*buffer))};
}

Result<Reply> sums(Files& files, const Request& request) {
  FieldReader reader(request.body());
  FileVersion file = reader.file();
  std::uint64_t stage = reader.number();
  BlockRange range;
  range.first = reader.number();
  range.count = reader.number();
  if (!reader.is_done() || stage > static_cast<std::uint64_t>(Stage::part)) return std::unexpected(malformed());
  FieldWriter fields;
  // Block by block, because whoever asked may go away: a small request must not cost more than it is worth to somebody.
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(range.count, kSumsPerCall); ++i) {
    if (request.cancelled()) return std::unexpected(nobody_waits());
    Result<std::vector<Digest>> digests = files.sums(file, static_cast<Stage>(stage), {range.first + i, 1});
    if (!digests) return std::unexpected(digests.error());
    if (digests->empty()) break;
    fields.add(digests->front());
  }
  return Reply{fields.bytes()};
}

Result<Reply> make_directory(Files& files, const Request& request) {
  FieldReader reader(request.body());
  std::string path = reader.text();
  std::uint64_t mode = reader.number();
  if (!reader.is_done() || mode > 0777) return std::unexpected(malformed());
  return answer(files.make_directory(path, static_cast<std::uint32_t>(mode)));
}

Result<Reply> begin(Files& files, const Request& request) {
  FieldReader reader(request.body());
  FileVersion file = reader.file();
  if (!reader.is_done()) return std::unexpected(malformed());
  Result<std::uint64_t> bytes = files.begin(file);
  if (!bytes) return std::unexpected(bytes.error());
  return Reply{FieldWriter().add(*bytes).bytes()};
}

Result<Reply> write(Files& files, const Request& request) {
  auto message = take_apart(request.header(), request.body());
  if (!message) return std::unexpected(malformed());
  FieldReader reader(message->fields);
  FileVersion file = reader.file();
  std::uint64_t block = reader.number();
  if (!reader.is_done()) return std::unexpected(malformed());
  return answer(files.write(file, block, message->block));
}

Result<Reply> finish(Files& files, const Request& request) {
  FieldReader reader(request.body());
  FileVersion file = reader.file();
  if (!reader.is_done()) return std::unexpected(malformed());
  return answer(files.finish(file));
}

using Handler = Result<Reply> (*)(Files&, const Request&);

}  // namespace

Result<void> serve_files(Pool& pool, const std::shared_ptr<Files>& files) {
  const std::pair<Method, Handler> handlers[] = {
      {kLookMethod, look},   {kListMethod, list},   {kSumsMethod, sums},     {kMakeDirectoryMethod, make_directory},
      {kBeginMethod, begin}, {kWriteMethod, write}, {kFinishMethod, finish},
  };
  for (const auto& [method, handler] : handlers) {
    auto served = pool.serve(method, [files, handler = handler](Request request) -> Result<Reply> {
      if (request.cancelled()) return std::unexpected(nobody_waits());
      return handler(*files, request);
    });
    if (!served) return served;
  }
  // The pool outlives its handlers.
  return pool.serve(kReadMethod, [files, pool = &pool](Request request) {
    bool is_cancelled = request.cancelled();
    return read(pool, files, std::move(request), is_cancelled);
  });
}

}  // namespace weir::command
