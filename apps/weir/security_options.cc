#include "apps/weir/security_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <vector>

#include "apps/weir/command.h"

namespace weir::command {

void add_security(CLI::App& command, SecurityOptions& options) {
  // Not CLI11's way to read the variable: that could not tell it from the option, and one that is set for other
  // commands must not forbid --identity.
  command.add_option(
      "--secret", options.secret,
      "What both sides know: at least 16 bytes. Better given by WEIR_SECRET, where `ps` does not show it");
  command
      .add_option("--identity", options.identity,
                  "Prove who we are with node.crt, node.key and ca.crt of this directory, as `weir identity issue` "
                  "writes them")
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  command
      .add_option_function<std::vector<std::string>>(
          "--development",
          [&options](const std::vector<std::string>& given) { options.development = given.empty() ? "" : given[0]; },
          "Made-up identities: believe every process that can read the directory (default: one that all "
          "programs of this user share)")
      ->expected(0, 1)
      ->type_name("[DIR]");
}

void choose_security(SecurityOptions& options) {
  const int given = !options.secret.empty() + !options.identity.empty() + options.development.has_value();
  if (given > 1) fail_use("give only one of --secret, --identity and --development");
  if (given == 1) return;
  if (const char* secret = std::getenv("WEIR_SECRET"); secret != nullptr) options.secret = secret;
  if (options.secret.empty()) {
    fail_use(
        "how do client and server know each other? Give both the same one of these:\n"
        "  a secret: `export WEIR_SECRET=$(openssl rand -hex 32)` on one machine and a copy of it on the other\n"
        "  --identity DIR: certificates that `weir identity issue` made\n"
        "  --development DIR: identities made up for tests, in a directory that both can read");
  }
}

void apply_security(const SecurityOptions& options, Config& config) {
  config.secret = options.secret;
  if (const std::string& folder = options.identity; !folder.empty()) {
    config.identity = Identity::from_files(folder + "/node.crt", folder + "/node.key", folder + "/ca.crt");
  } else if (options.development) {
    config.identity = Identity::development(*options.development);
  }
}

}  // namespace weir::command
