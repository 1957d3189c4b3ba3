#include "apps/weir/remote_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/weir/path.h"

namespace weir::command {

namespace {

// Long enough for a slow disk that reads 16 MiB; a peer that went away is noticed long before.
constexpr std::chrono::seconds kDeadline{60};

Error nonsense(std::string_view what) {
  return {Code::invalid_argument, fmt::format("the peer's answer makes no sense: {}", what)};
}

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Who copies files knows nothing of calls and methods.
Error in_words_of_files(std::string_view address, Method method, const Error& error) {
  switch (error.code()) {
    case Code::timeout:
      return {error.code(),
              fmt::format("{} has not answered for {} s: it is overloaded, or its disk is", address, kDeadline.count()),
              error.may_have_run()};
    case Code::unknown_method:
      return {error.code(), fmt::format("{} serves no files: it is not `weir serve-files`", address),
              error.may_have_run()};
    default: {
      std::string_view sentence = error.message();
      const std::string of_call = fmt::format("\"{}\" at ", method.name());
      if (sentence.starts_with(of_call)) sentence.remove_prefix(of_call.size());
      return {error.code(), std::string(sentence), error.may_have_run()};
    }
  }
}

// Whether a path can be right is the peer's business; one that no message can hold is told here.
Result<void> check_length(const std::string& path) {
  if (path.size() <= kMaxPathBytes) return {};
  return std::unexpected(split_path(path).error());
}

}  // namespace

Result<Reply> RemoteFiles::ask(Method method, Bytes body, std::string_view header) const {
  Result<Reply> reply = peer_.unary(method, body, {.deadline = kDeadline, .header = header}).get();
  if (!reply) [[unlikely]]
    return std::unexpected(in_words_of_files(peer_.address(), method, reply.error()));
  return reply;
}

Result<void> RemoteFiles::tell(Method method, const FieldWriter& fields) const {
  Result<Reply> reply = ask(method, fields.bytes());
  if (!reply) return std::unexpected(reply.error());
  return {};
}

Result<FileInfo> RemoteFiles::look(const std::string& path) {
  if (auto checked = check_length(path); !checked) return std::unexpected(checked.error());
  Result<Reply> reply = ask(kLookMethod, FieldWriter().add(path).bytes());
  if (!reply) return std::unexpected(reply.error());
  FieldReader reader(reply->body());
  FileInfo info = reader.info();
  if (!reader.is_done()) return std::unexpected(nonsense("about one file"));
  return info;
}

Result<Listing> RemoteFiles::list(const std::string& path, const std::string& after) {
  if (auto checked = check_length(path); !checked) return std::unexpected(checked.error());
  Result<Reply> reply = ask(kListMethod, FieldWriter().add(path).add(after).bytes());
  if (!reply) return std::unexpected(reply.error());
  FieldReader reader(reply->body());
  Listing listing;
  listing.has_more = reader.number() != 0;
  std::uint64_t count = reader.number();
  if (count > kEntriesPerCall || (listing.has_more && count == 0)) return std::unexpected(nonsense("a list's length"));
  std::string last = after;
  for (std::uint64_t i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.text();
    FileInfo info = reader.info();
    if (!reader.ok()) break;
    if (auto checked = check_name(name); !checked) return std::unexpected(checked.error());
    if (name <= last) return std::unexpected(nonsense("a list's order"));
    last = name;
    listing.entries.push_back({std::move(name), info});
  }
  if (!reader.is_done()) return std::unexpected(nonsense("a list"));
  return listing;
}

Result<void> RemoteFiles::read(const FileVersion& file, std::uint64_t block, std::span<std::byte> into) {
  Result<Reply> reply = ask(kReadMethod, FieldWriter().add(file).add(block).bytes());
  if (!reply) return std::unexpected(reply.error());
  if (reply->body().size() != into.size()) return std::unexpected(nonsense("a block of another size"));
  std::ranges::copy(reply->body(), into.begin());
  return {};
}

Result<std::vector<Digest>> RemoteFiles::sums(const FileVersion& file, Stage stage, BlockRange range) {
  FieldWriter fields;
  fields.add(file).add(static_cast<std::uint64_t>(stage)).add(range.first).add(range.count);
  Result<Reply> reply = ask(kSumsMethod, fields.bytes());
  if (!reply) return std::unexpected(reply.error());
  FieldReader reader(reply->body());
  std::vector<Digest> digests;
  while (!reader.is_done() && reader.ok() && digests.size() < range.count) digests.push_back(reader.digest());
  if (!reader.is_done()) return std::unexpected(nonsense("digests"));
  return digests;
}

Result<void> RemoteFiles::make_directory(const std::string& path, std::uint32_t mode) {
  if (auto checked = check_length(path); !checked) return checked;
  return tell(kMakeDirectoryMethod, FieldWriter().add(path).add(std::uint64_t{mode}));
}

Result<std::uint64_t> RemoteFiles::begin(const FileVersion& file) {
  if (auto checked = check_length(file.path); !checked) return std::unexpected(checked.error());
  Result<Reply> reply = ask(kBeginMethod, FieldWriter().add(file).bytes());
  if (!reply) return std::unexpected(reply.error());
  FieldReader reader(reply->body());
  std::uint64_t bytes = reader.number();
  if (!reader.is_done()) return std::unexpected(nonsense("what is there already"));
  return bytes;
}

Result<void> RemoteFiles::write(const FileVersion& file, std::uint64_t block, Bytes bytes) {
  FieldWriter header, fields(std::vector<std::byte>(bytes.begin(), bytes.end()));
  header.add(std::uint64_t{bytes.size()});
  fields.add(file).add(block);
  Result<Reply> reply = ask(kWriteMethod, fields.bytes(), text_of(header.bytes()));
  if (!reply) return std::unexpected(reply.error());
  return {};
}

Result<void> RemoteFiles::finish(const FileVersion& file) { return tell(kFinishMethod, FieldWriter().add(file)); }

}  // namespace weir::command
