#include <weir/error.h>

#include <cstdio>

int main() {
  const weir::Error error(weir::Code::timeout, "the deadline passed", true);
  std::puts(error.to_string().c_str());
  return error.code() == weir::Code::timeout ? 0 : 1;
}
