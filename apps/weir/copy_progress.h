// CopyProgress: a line on stderr that says how far a copy is. Any thread may tell it; one is told at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace weir::command {

enum class ShowProgress : std::uint8_t { on_terminal, never, always };

class CopyProgress {
 public:
  explicit CopyProgress(ShowProgress wish);
  CopyProgress(const CopyProgress&) = delete;
  CopyProgress& operator=(const CopyProgress&) = delete;
  ~CopyProgress();

  void expect(std::uint64_t bytes);
  void begin_file(const std::string& path);
  // Bytes that are there now, whether they were sent or were there before.
  void advance(std::uint64_t bytes);
  // A sentence for the user, above the line.
  void say(const std::string& sentence);

 private:
  void draw(bool is_last);

  bool is_shown_;
  bool on_terminal_;
  std::mutex mutex_;
  std::string path_;
  std::uint64_t expected_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
  std::int64_t began_ns_;
  std::int64_t drawn_ns_ = 0;
};

}  // namespace weir::command
