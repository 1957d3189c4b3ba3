// Stands in for libFuzzer where there is none: runs a fuzz target over a corpus and over seeded mutations of it, so
// that every ordinary test run exercises the target and a failure repeats.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t kLongestRandomInput = 2'048;

Input read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), {});
}

void run(const Input& input) {
  // An exact-size copy on the heap, so that a sanitizer sees a read one byte too far.
  const Input copy(input);
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

Input mutate(const std::vector<Input>& corpus, weir::Random& random) {
  Input input;
  if (!corpus.empty() && !random.chance(0.1)) {
    input = corpus[random.below(corpus.size())];
  } else {
    input.resize(random.below(kLongestRandomInput));
    for (auto& byte : input) byte = static_cast<std::uint8_t>(random.next());
  }
  for (std::uint64_t edits = 1 + random.below(4); edits > 0 && !input.empty(); --edits) {
    const std::size_t at = random.below(input.size());
    switch (random.below(4)) {
      case 0:
        input[at] = static_cast<std::uint8_t>(random.next());
        break;
      case 1:
        input[at] ^= static_cast<std::uint8_t>(1u << random.below(8));
        break;
      case 2:
        input.resize(at);
        break;
      default:
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::uint8_t>(random.next()));
        break;
    }
  }
  return input;
}

}  // namespace

//   x_fuzz [--mutations=N] [FILE | DIRECTORY]...
int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  int mutations = 20'000;
  constexpr std::string_view kOption = "--mutations=";
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(kOption)) {
      mutations = std::stoi(argv[i] + kOption.size());
    } else if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    } else if (std::filesystem::exists(argv[i])) {
      files.emplace_back(argv[i]);
    } else {
      std::fprintf(stderr, "no such corpus: %s\n", argv[i]);
      return 1;
    }
  }
  std::sort(files.begin(), files.end());

  std::vector<Input> corpus;
  for (const auto& file : files) corpus.push_back(read(file));

  run({});
  for (const auto& input : corpus) run(input);
  weir::Random random(1);
  for (int i = 0; i < mutations; ++i) run(mutate(corpus, random));
  std::printf("%zu inputs of the corpus and %d mutations\n", corpus.size(), mutations);
  return 0;
}
