#include "apps/weir/copy_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "apps/weir/format.h"
#include "apps/weir/live_view.h"
#include "apps/weir/path.h"
#include "apps/weir/process.h"

namespace weir::command {

namespace {
constexpr std::size_t kBarWidth = 20;
constexpr std::size_t kPathWidth = 24;  // with the rest, less than 80 columns
constexpr int kColumns = 80;
constexpr std::int64_t kTerminalIntervalNs = 100'000'000;
constexpr std::int64_t kLineIntervalNs = 1'000'000'000;

// At most so many bytes, but no half characters.
std::string end_of(const std::string& text, std::size_t bytes) {
  std::size_t at = text.size() - bytes;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return text.substr(at);
}
}  // namespace

CopyProgress::CopyProgress(ShowProgress wish) : on_terminal_(can_redraw(STDERR_FILENO, kColumns)), began_ns_(now_ns()) {
  is_shown_ = wish == ShowProgress::always || (wish == ShowProgress::on_terminal && isatty(STDERR_FILENO) == 1);
}

CopyProgress::~CopyProgress() {
  if (is_shown_ && expected_bytes_ != 0) draw(true);
}

void CopyProgress::expect(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  expected_bytes_ = bytes;
}

void CopyProgress::begin_file(const std::string& path) {
  std::lock_guard lock(mutex_);
  path_ = shown(path);
}

void CopyProgress::advance(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  done_bytes_ += bytes;
  if (!is_shown_) return;
  std::int64_t now = now_ns();
  if (now - drawn_ns_ < (on_terminal_ ? kTerminalIntervalNs : kLineIntervalNs)) return;
  drawn_ns_ = now;
  draw(false);
}

void CopyProgress::say(const std::string& sentence) {
  std::lock_guard lock(mutex_);
  fmt::print(stderr, "{}weir: {}\n", is_shown_ && on_terminal_ ? "\r\x1b[2K" : "", printable(sentence));
}

void CopyProgress::draw(bool is_last) {
  double fraction = share(done_bytes_, expected_bytes_);
  double seconds = static_cast<double>(now_ns() - began_ns_) * 1e-9;
  std::string path = path_.size() <= kPathWidth ? path_ : ".." + end_of(path_, kPathWidth - 2);
  std::string line = fmt::format("{:<{}} {} {:>3.0f} %  {} of {}  {:.0f} MB/s", path, kPathWidth,
                                 bar(fraction, kBarWidth), 100 * fraction, in_bytes(done_bytes_),
                                 in_bytes(expected_bytes_), static_cast<double>(done_bytes_) * 1e-6 / seconds);
  fmt::print(stderr, "{}{}{}", on_terminal_ ? "\r\x1b[2K" : "", line, on_terminal_ && !is_last ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace weir::command
