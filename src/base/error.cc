#include "weir/error.h"

namespace weir {

std::string_view name(Code code) {
  switch (code) {
    case Code::timeout:
      return "timeout";
    case Code::peer_failed:
      return "peer_failed";
    case Code::dependency_failed:
      return "dependency_failed";
    case Code::cancelled:
      return "cancelled";
    case Code::refused:
      return "refused";
    case Code::overloaded:
      return "overloaded";
    case Code::too_large:
      return "too_large";
    case Code::unauthenticated:
      return "unauthenticated";
    case Code::reset:
      return "reset";
    case Code::unknown_method:
      return "unknown_method";
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::closed:
      return "closed";
    case Code::application:
      return "application";
    case Code::system:
      return "system";
  }
  return "unknown";  // a code from a newer peer
}

std::string Error::to_string() const {
  std::string text{name(code_)};
  if (!message().empty()) {
    text += ": ";
    text += message();
  }
  if (may_have_run_) text += " (the peer may have run it)";
  return text;
}

}  // namespace weir
