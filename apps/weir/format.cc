#include "apps/weir/format.h"

#include <fmt/format.h>

namespace weir::command {

std::string with_commas(std::uint64_t value) {
  std::string text = fmt::format("{}", value);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string counted(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", with_commas(count), one, count == 1 ? "" : "s");
}

std::string in_rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f} M", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.1f} k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

std::string in_time(double nanoseconds) {
  if (nanoseconds >= 1e9) return fmt::format("{:.2f} s", nanoseconds / 1e9);
  if (nanoseconds >= 1e6) return fmt::format("{:.2f} ms", nanoseconds / 1e6);
  return fmt::format("{:.1f} us", nanoseconds / 1e3);
}

std::string in_bytes(std::uint64_t bytes) {
  auto value = static_cast<double>(bytes);
  if (bytes >= std::uint64_t{1} << 30) return fmt::format("{:.1f} GiB", value / (1u << 30));
  if (bytes >= std::uint64_t{1} << 20) return fmt::format("{:.1f} MiB", value / (1u << 20));
  if (bytes >= std::uint64_t{1} << 10) return fmt::format("{:.1f} KiB", value / (1u << 10));
  return fmt::format("{} B", bytes);
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string sent_again(std::uint64_t frames, double share_of_bytes) {
  if (frames == 0) return "Nothing had to be sent again";
  return fmt::format("{} ({:.2f} % of the bytes) {} sent again, because of loss or delay", counted(frames, "frame"),
                     100 * share_of_bytes, frames == 1 ? "was" : "were");
}

}  // namespace weir::command
