#include "tests/explore/trace.h"

#include <cstdio>
#include <cstring>

namespace weir::explore {
namespace {

const char* name_of(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed:
      return "relaxed";
    case std::memory_order_consume:
    case std::memory_order_acquire:
      return "acquire";
    case std::memory_order_release:
      return "release";
    case std::memory_order_acq_rel:
      return "acq_rel";
    case std::memory_order_seq_cst:
      return "seq_cst";
  }
  return "";
}

// "pool::Lane::deliver" of the whole signature.
std::string short_name(const char* signature) {
  std::string name = signature;
  int depth = 0;
  std::size_t end = name.size(), begin = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<';
    depth -= name[i] == '>' && (i == 0 || name[i - 1] != '-');
    if (depth == 0 && name[i] == ' ') begin = i + 1;
    if (depth == 0 && name[i] == '(') {
      end = i;
      break;
    }
  }
  name = name.substr(begin, end - begin);
  for (const char* prefix : {"weir::explore::", "weir::"}) {
    if (name.starts_with(prefix)) name.erase(0, std::strlen(prefix));
  }
  return name;
}

std::string short_file(const char* path) {
  const char* file = std::strrchr(path, '/');
  return file == nullptr ? path : file + 1;
}

}  // namespace

void Trace::add(const Step& step, const Where& where) {
  char line[512];
  std::snprintf(line, sizeof line, "  %3u T%zu  %-9s %-8s #%-3u %-18llx %s:%u %s\n", step.number, step.thread,
                step.what, name_of(step.order), step.location == nullptr ? 0 : step.location->number,
                static_cast<unsigned long long>(step.value), short_file(where.file_name()).c_str(),
                static_cast<unsigned>(where.line()), short_name(where.function_name()).c_str());
  text_ += line;
}

}  // namespace weir::explore
