// Choices: what one run chooses at each point where there is a choice, and which run comes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weir::explore {

// Depth first over all choices, at random from a seed, or as a schedule says. The first of the possible answers is what
// happens without the explorer's doing: the thread goes on, the newest value is read.
class Choices {
 public:
  enum class Mode : std::uint8_t { all, random, replay };

  void search_all();
  void search_at_random() { mode_ = Mode::random; }
  void replay(const std::string& schedule);
  Mode mode() const { return mode_; }

  void begin_run() { position_ = depth_ = wanted_at_ = 0; }
  void begin_random_run(std::uint64_t seed);
  // True: the next choice is one that no run of a search of all has come to.
  bool is_new() const { return mode_ == Mode::all && depth_ == path_.size(); }
  // There could be a choice here, and is none. A schedule counts these, too: so it does not depend on what a search
  // knows already about which of them are needed.
  void pass() { ++position_; }
  // One of `count`; a search tries the first `allowed`.
  std::size_t choose(std::size_t count, std::size_t allowed, bool is_thread);
  // To the next run of a search of all. False: there is none.
  bool next_run();
  // Of the run: "23:1,26:1" for every choice that was not the first one.
  std::string schedule() const;

 private:
  struct Choice {
    std::uint32_t position = 0;
    std::uint8_t chosen = 0;
    std::uint8_t allowed = 1;
  };
  std::uint64_t random_below(std::uint64_t limit);

  Mode mode_ = Mode::all;
  std::vector<Choice> path_;
  std::size_t depth_ = 0;
  std::uint32_t position_ = 0;                                  // of all that could be chosen
  std::vector<std::pair<std::uint32_t, std::uint8_t>> wanted_;  // of a replay: position and answer
  std::size_t wanted_at_ = 0;
  std::uint64_t random_ = 1;
  std::uint64_t switch_chance_ = 4;
};

}  // namespace weir::explore
