#include "apps/weir/copier.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "apps/weir/path.h"
#include "apps/weir/process.h"

namespace weir::command {

namespace {
// A block that is still wrong after this was not damaged by chance.
constexpr int kAttempts = 3;
}  // namespace

bool Copier::forgive(const Error& error) {
  std::lock_guard lock(mutex_);
  if (error.code() != Code::application && error.code() != Code::refused) {
    if (!report_.fatal) report_.fatal = error;
    return false;
  }
  ++report_.failed;
  progress_.say(std::string(error.message()));
  return true;
}

bool Copier::is_over() {
  std::lock_guard lock(mutex_);
  return report_.fatal.has_value() || stop_requested();
}

// ---- planning -------------------------------------------------------------------------------------------------------

void Copier::plan(Files& from, const std::string& from_path, const std::string& to_path) {
  Result<FileInfo> info = from.look(from_path);
  if (!info) {
    forgive(info.error());
  } else if (info->kind == FileKind::absent) {
    forgive(Error(Code::application, fmt::format("{}: no such file", shown(from_path))));
  } else if (info->kind == FileKind::directory && !options_.recursive) {
    forgive(Error(Code::application, fmt::format("{} is a directory; -r copies it", shown(from_path))));
  } else {
    plan_entry(from, {from_path, *info}, to_path, 0);
  }
}

void Copier::plan_entry(Files& from, const FileVersion& source, const std::string& to_path, std::size_t depth) {
  if (is_over()) return;
  if (++entries_ > kMaxEntries || source.info.bytes > kMaxBytes - planned_bytes_) {
    forgive(Error(Code::invalid_argument, "there is too much to copy at once: take the tree in parts"));
    return;
  }
  if (source.info.kind == FileKind::file) {
    if (targets_.contains(to_path)) {
      forgive(Error(Code::application,
                    fmt::format("{} is not copied: another source goes to the same place", shown(source.path))));
      return;
    }
    auto job = std::make_unique<Job>();
    job->from = &from;
    job->source = source;
    job->target = {to_path, source.info};
    job->pieces_left = std::max<std::uint64_t>(1, (blocks_of(source.info.bytes) + kPieceBlocks - 1) / kPieceBlocks);
    planned_bytes_ += source.info.bytes;
    targets_.insert(job->target.path);
    jobs_.push_back(std::move(job));
    return;
  }
  if (source.info.kind == FileKind::other) {
    ++report_.skipped;
    progress_.say(fmt::format("{} is left out: it is a link or a device", shown(source.path)));
    return;
  }
  if (source.info.kind != FileKind::directory) return;  // gone since it was listed
  if (depth == kMaxDepth) {
    forgive(Error(Code::application, fmt::format("{}: the tree is too deep", shown(source.path))));
    return;
  }
  if (auto made = to_.make_directory(to_path, source.info.mode); !made) {
    forgive(made.error());
    return;
  }
  ++report_.directories;
  std::string after;
  for (bool has_more = true; has_more && !is_over();) {
    Result<Listing> listing = from.list(source.path, after);
    if (!listing) {
      forgive(listing.error());
      return;
    }
    has_more = listing->has_more;
    for (const FileEntry& entry : listing->entries) {
      plan_entry(from, {join(source.path, entry.name), entry.info}, join(to_path, entry.name), depth + 1);
      after = entry.name;
    }
  }
}

// ---- copying --------------------------------------------------------------------------------------------------------

CopyReport Copier::run() {
  progress_.expect(planned_bytes_);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back([this] { work(); });
  for (std::thread& thread : threads) thread.join();
  return report_;
}

std::optional<Copier::Piece> Copier::next() {
  std::lock_guard lock(mutex_);
  if (report_.fatal || stop_requested() || next_job_ == jobs_.size()) return std::nullopt;
  Job& job = *jobs_[next_job_];
  std::uint64_t blocks = blocks_of(job.source.info.bytes);
  Piece piece{.job = &job, .range = {next_block_, std::min(kPieceBlocks, blocks - next_block_)}};
  next_block_ += piece.range.count;
  if (next_block_ == blocks) {
    next_block_ = 0;
    ++next_job_;
  }
  return piece;
}

void Copier::work() {
  std::vector<std::byte> memory(kBlockBytes);
  while (std::optional<Piece> piece = next()) copy(*piece, memory);
}

void Copier::copy(const Piece& piece, std::vector<std::byte>& memory) {
  Job& job = *piece.job;
  Stand stand;
  {
    // Whoever comes second waits for whoever begins.
    std::lock_guard lock(job.mutex);
    if (job.stand == Stand::not_begun) {
      Result<Stand> begun = begin(job);
      job.stand = begun ? *begun : Stand::failed;
      if (!begun) forgive(begun.error());
    }
    stand = job.stand;
  }
  Result<void> copied;
  if (stand == Stand::begun) copied = copy_piece(piece, memory);
  std::lock_guard lock(job.mutex);
  if (!copied && job.stand != Stand::failed) {
    job.stand = Stand::failed;
    forgive(copied.error());
  }
  if (auto ended = end_piece(job); !ended) forgive(ended.error());
}

Result<Copier::Stand> Copier::begin(Job& job) {
  progress_.begin_file(job.target.path);
  Result<bool> there = is_there(job);
  if (!there) return std::unexpected(there.error());
  if (*there) {
    progress_.advance(job.source.info.bytes);
    return Stand::there;
  }
  Result<std::uint64_t> begun = to_.begin(job.target);
  if (!begun) return std::unexpected(begun.error());
  job.part_bytes = *begun;
  return Stand::begun;
}

// The same size and time, and, if it is checked, the same bytes.
Result<bool> Copier::is_there(Job& job) {
  Result<FileInfo> info = to_.look(job.target.path);
  if (!info) return std::unexpected(info.error());
  const FileInfo& wanted = job.source.info;
  if (info->kind != FileKind::file || info->bytes != wanted.bytes || info->modified_ns != wanted.modified_ns) {
    return false;
  }
  if (!options_.check) return true;
  std::uint64_t blocks = blocks_of(wanted.bytes);
  for (std::uint64_t block = 0; block < blocks; block += kPieceBlocks) {
    BlockRange range{block, std::min(kPieceBlocks, blocks - block)};
    auto here = job.from->sums(job.source, Stage::whole, range);
    if (!here) return std::unexpected(here.error());
    auto beyond = to_.sums(job.target, Stage::whole, range);
    if (!beyond) return std::unexpected(beyond.error());
    if (*here != *beyond) return false;
  }
  return true;
}

Result<void> Copier::copy_piece(const Piece& piece, std::vector<std::byte>& memory) {
  Job& job = *piece.job;
  const std::uint64_t bytes = job.source.info.bytes;
  const BlockRange range = piece.range;
  std::vector<Digest> wanted(range.count);
  std::vector<bool> is_missing(range.count, true);
  if (range.first * kBlockBytes < job.part_bytes) {
    auto here = job.from->sums(job.source, Stage::whole, range);
    if (!here) return std::unexpected(here.error());
    auto beyond = to_.sums(job.target, Stage::part, range);
    if (!beyond) return std::unexpected(beyond.error());
    for (std::size_t i = 0; i < std::min(here->size(), beyond->size()); ++i) {
      if ((*here)[i] != (*beyond)[i]) continue;
      is_missing[i] = false;
      wanted[i] = (*here)[i];
      progress_.advance(block_bytes(bytes, range.first + i));
      std::lock_guard lock(mutex_);
      report_.there_before_bytes += block_bytes(bytes, range.first + i);
    }
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (std::ranges::find(is_missing, true) == is_missing.end()) return {};
    for (std::uint64_t i = 0; i < range.count; ++i) {
      if (!is_missing[i]) continue;
      if (is_over()) return std::unexpected(Error(Code::cancelled, "the copy was interrupted"));
      std::uint64_t block = range.first + i;
      auto block_memory = std::span(memory).first(block_bytes(bytes, block));
      if (auto got = job.from->read(job.source, block, block_memory); !got) return got;
      if (options_.check) wanted[i] = digest_of(block_memory);
      if (auto put = to_.write(job.target, block, block_memory); !put) return put;
      if (attempt == 0) progress_.advance(block_memory.size());
      is_missing[i] = false;
      std::lock_guard lock(mutex_);
      report_.sent_bytes += block_memory.size();
    }
    if (!options_.check) return {};
    auto beyond = to_.sums(job.target, Stage::part, range);
    if (!beyond) return std::unexpected(beyond.error());
    for (std::size_t i = 0; i < range.count; ++i) is_missing[i] = i >= beyond->size() || (*beyond)[i] != wanted[i];
  }
  if (std::ranges::find(is_missing, true) == is_missing.end()) return {};
  return std::unexpected(Error(Code::application, fmt::format("{}: what was written is not what is read back, {} times",
                                                              shown(job.target.path), kAttempts)));
}

Result<void> Copier::end_piece(Job& job) {
  if (--job.pieces_left != 0 || job.stand == Stand::failed) return {};
  if (job.stand == Stand::begun) {
    if (auto finished = to_.finish(job.target); !finished) return finished;
  }
  std::lock_guard lock(mutex_);
  ++report_.files;
  if (job.stand == Stand::there) report_.there_before_bytes += job.source.info.bytes;
  return {};
}

}  // namespace weir::command
