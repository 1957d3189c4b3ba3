// Another process for the other side of a test, so that what is measured of this one is one side's alone.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace weir::testing {

// What a child and its parent say to each other, a line at a time.
class Lines {
 public:
  Lines(int in, int out) : in_(fdopen(in, "r")), out_(fdopen(out, "w")) {}
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  ~Lines() {
    std::fclose(out_);
    std::fclose(in_);
  }
  void say(const std::string& line) {
    std::fprintf(out_, "%s\n", line.c_str());
    std::fflush(out_);
  }
  // Empty at the end.
  std::string hear() {
    char text[64] = {};
    std::string line = std::fgets(text, sizeof text, in_) == nullptr ? "" : text;
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
  }

 private:
  std::FILE* in_;
  std::FILE* out_;
};

// Another process, until the parent has nothing more to say. Forked while this process has no other thread; what `run`
// makes is destroyed with the process.
class Child {
 public:
  explicit Child(void (*run)(Lines&)) {
    int to_parent[2], to_child[2];
    if (pipe(to_parent) != 0 || pipe(to_child) != 0) std::abort();
    child_ = fork();
    if (child_ == 0) {
      close(to_child[1]);
      close(to_parent[0]);
      Lines lines(to_child[0], to_parent[1]);
      run(lines);
      while (!lines.hear().empty()) {
      }
      _exit(0);
    }
    close(to_parent[1]);
    close(to_child[0]);
    lines_.emplace(to_parent[0], to_child[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    lines_.reset();
    waitpid(child_, nullptr, 0);
  }
  Lines& lines() { return *lines_; }
  // In the middle of whatever it does.
  void kill() { ::kill(child_, SIGKILL); }

 private:
  pid_t child_;
  std::optional<Lines> lines_;
};

}  // namespace weir::testing
