// SecurityOptions: how a command and its peers know each other. What `weir perf` and `weir cp` have in common.
#pragma once

#include <optional>
#include <string>

#include "weir/config.h"

namespace CLI {
class App;
}

namespace weir::command {

// Exactly one of these, once choose_security() is done.
struct SecurityOptions {
  std::string secret;
  std::string identity;                    // a directory with node.crt, node.key and ca.crt
  std::optional<std::string> development;  // a directory; empty: the usual one
};

void add_security(CLI::App& command, SecurityOptions& options);
// The command line wins over the environment. Ends the program if there is nothing, or too much.
void choose_security(SecurityOptions& options);
void apply_security(const SecurityOptions& options, Config& config);

}  // namespace weir::command
