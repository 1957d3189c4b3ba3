// Errors are values: a code, a sentence, and whether the peer may have run the request.
#pragma once

#include "weir/require.h"
// The rest needs what this asks for.
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace weir {

enum class Code : std::uint8_t {
  timeout = 1,        // the deadline passed
  peer_failed,        // the peer fell silent or could not be reached
  dependency_failed,  // something this call depends on failed
  cancelled,          // the caller dropped or cancelled it
  refused,            // the peer would not take it (it is closing, or not allowed)
  overloaded,         // a limit was reached and waiting would not have helped
  too_large,          // over a size limit
  unauthenticated,    // a proof is missing or false: another secret, a certificate that does not do, forged bytes
  reset,              // the peer restarted or no longer knows this transfer
  unknown_method,     // nobody serves this method there
  invalid_argument,   // the call or the configuration makes no sense; the sentence says why
  closed,             // this pool is closed or closing
  application,        // the handler answered with an error of its own
  system,             // the operating system refused something; the sentence has its words
};

std::string_view name(Code code);

class [[nodiscard]] Error {
 public:
  // From a string literal, which costs no allocation.
  template <std::size_t N>
  Error(Code code, const char (&sentence)[N], bool may_have_run = false)
      : code_(code), may_have_run_(may_have_run), sentence_(sentence) {}
  // From anything else: copied.
  template <class Pointer>
    requires std::is_pointer_v<Pointer>
  Error(Code code, const Pointer& sentence, bool may_have_run = false)
      : Error(code, std::string(sentence), may_have_run) {}
  Error(Code code, std::string sentence, bool may_have_run = false)
      : code_(code), may_have_run_(may_have_run), owned_(std::make_shared<const std::string>(std::move(sentence))) {}

  Code code() const { return code_; }
  std::string_view message() const { return owned_ ? std::string_view{*owned_} : std::string_view{sentence_}; }

  // False: the peer has certainly not run this request and never will. True: it may have, once.
  bool may_have_run() const { return may_have_run_; }

  // "timeout: the deadline passed (the peer may have run it)"
  std::string to_string() const;

 private:
  Code code_;
  bool may_have_run_;
  const char* sentence_ = "";
  std::shared_ptr<const std::string> owned_;
};

template <class T>
using Result = std::expected<T, Error>;

}  // namespace weir
