#include "tests/explore/choices.h"

#include <algorithm>
#include <cstdlib>

#include "tests/explore/model.h"

namespace weir::explore {

void Choices::search_all() {
  mode_ = Mode::all;
  path_.clear();
}

void Choices::replay(const std::string& schedule) {
  mode_ = Mode::replay;
  wanted_.clear();
  const char* at = schedule.c_str();
  while (*at != '\0' && *at != '-') {
    char* end = nullptr;
    const auto position = static_cast<std::uint32_t>(std::strtoul(at, &end, 10));
    if (end == at || *end != ':') break;
    wanted_.emplace_back(position, static_cast<std::uint8_t>(std::strtoul(end + 1, &end, 10)));
    at = *end == ',' ? end + 1 : end;
  }
}

void Choices::begin_random_run(std::uint64_t seed) {
  random_ = mix(seed, 0xd1ce);
  switch_chance_ = std::uint64_t{1} << (1 + random_below(4));
}

std::uint64_t Choices::random_below(std::uint64_t limit) {
  random_ += 0x9e3779b97f4a7c15;
  return mix(random_, 0x5eed) % limit;
}

std::size_t Choices::choose(std::size_t count, std::size_t allowed, bool is_thread) {
  const std::uint32_t position = position_++;
  const std::size_t index = depth_++;
  if (mode_ == Mode::replay) {
    if (wanted_at_ == wanted_.size() || wanted_[wanted_at_].first != position) return 0;
    return std::min<std::size_t>(wanted_[wanted_at_++].second, count - 1);
  }
  if (index < path_.size() && mode_ == Mode::all) return path_[index].chosen;
  if (path_.size() == index) path_.emplace_back();
  Choice& choice = path_[index];
  choice = {.position = position, .chosen = 0, .allowed = static_cast<std::uint8_t>(allowed)};
  if (mode_ == Mode::random && allowed > 1 && random_below(is_thread ? switch_chance_ : 6) == 0) {
    choice.chosen = static_cast<std::uint8_t>(random_below(allowed));
  }
  return choice.chosen;
}

bool Choices::next_run() {
  path_.resize(std::min(depth_, path_.size()));
  while (!path_.empty() && path_.back().chosen + 1 >= path_.back().allowed) path_.pop_back();
  if (path_.empty()) return false;
  ++path_.back().chosen;
  return true;
}

std::string Choices::schedule() const {
  std::string text;
  for (std::size_t i = 0; i < std::min(depth_, path_.size()); ++i) {
    if (path_[i].chosen == 0) continue;
    if (!text.empty()) text += ',';
    text += std::to_string(path_[i].position) + ':' + std::to_string(path_[i].chosen);
  }
  return text.empty() ? "-" : text;
}

}  // namespace weir::explore
