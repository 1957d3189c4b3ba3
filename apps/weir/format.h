// Numbers as people read them: "1,234,567", "12.3 us", "8.0 MiB".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weir::command {

std::string with_commas(std::uint64_t value);
std::string counted(std::uint64_t count, std::string_view one);  // "1 call", "1,000 calls"
std::string in_rate(double per_second);                          // "4.21 M"
std::string in_time(double nanoseconds);                         // "12.3 us"
std::string in_bytes(std::uint64_t bytes);                       // "8.0 MiB"
double share(std::uint64_t part, std::uint64_t whole);           // 0 if there is no whole
// "1 frame (0.01 % of the bytes) was sent again, because of loss or delay". Without a full stop.
std::string sent_again(std::uint64_t frames, double share_of_bytes);

}  // namespace weir::command
