// Copier: copies files and trees from one place to another, several blocks at a time. One per run of `weir cp`.
//
// A few threads take pieces of files, in order; each reads a block, writes it, and at the end of its piece asks the
// other side for the digests of what is there now. Who begins a file first looks whether it is there already; who ends
// it last gives it its name. So what is held in memory is a block per thread, and what is left over from an interrupted
// copy is compared piece by piece, and sent only where it differs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "apps/weir/copy_progress.h"
#include "apps/weir/files.h"

namespace weir::command {

struct CopyOptions {
  bool recursive = false;
  bool check = true;
};

struct CopyReport {
  std::uint64_t files = 0;  // that are there now
  std::uint64_t directories = 0;
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;  // links and the like
  std::uint64_t sent_bytes = 0;
  std::uint64_t there_before_bytes = 0;
  std::optional<Error> fatal;  // after which nothing else was tried
};

class Copier {
 public:
  static constexpr std::size_t kThreads = 4;
  static constexpr std::uint64_t kPieceBlocks = 16;
  static constexpr std::size_t kMaxEntries = 1'000'000;  // of any kind: whoever lists them may have no end of them
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 50;  // all files together
  static_assert(kPieceBlocks <= kSumsPerCall);

  Copier(Files& to, const CopyOptions& options, CopyProgress& progress)
      : to_(to), options_(options), progress_(progress) {}

  // What is to be copied: makes the directories, and remembers the files. Errors about single files are told and
  // counted.
  void plan(Files& from, const std::string& from_path, const std::string& to_path);
  CopyReport run();

 private:
  enum class Stand : std::uint8_t { not_begun, begun, there, failed };
  struct Job {
    Files* from;
    FileVersion source;
    FileVersion target;
    std::mutex mutex;  // of what follows
    Stand stand = Stand::not_begun;
    std::uint64_t part_bytes = 0;  // from an earlier attempt
    std::uint64_t pieces_left = 0;
  };
  struct Piece {
    Job* job = nullptr;
    BlockRange range;
  };

  void plan_entry(Files& from, const FileVersion& source, const std::string& to_path, std::size_t depth);
  std::optional<Piece> next();
  void work();
  void copy(const Piece& piece, std::vector<std::byte>& memory);
  Result<Stand> begin(Job& job);
  Result<bool> is_there(Job& job);
  Result<void> copy_piece(const Piece& piece, std::vector<std::byte>& memory);
  Result<void> end_piece(Job& job);
  // Tells it; true if it is about this file only.
  bool forgive(const Error& error);
  bool is_over();

  Files& to_;
  const CopyOptions options_;
  CopyProgress& progress_;

  std::mutex mutex_;  // of what follows
  std::vector<std::unique_ptr<Job>> jobs_;
  std::unordered_set<std::string_view> targets_;  // of the jobs, who own the text
  std::size_t entries_ = 0;
  std::size_t next_job_ = 0;
  std::uint64_t next_block_ = 0;
  std::uint64_t planned_bytes_ = 0;
  CopyReport report_;
};

}  // namespace weir::command
