#include "handshake/development.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "handshake/authority.h"
#include "handshake/private_file.h"

namespace weir::handshake {
namespace {

constexpr unsigned kMaxGenerations = 1000;  // more than eighty years
constexpr std::size_t kMaxFileBytes = 16 * 1024;

std::string file_name(unsigned generation) { return "authority-" + std::to_string(generation) + ".pem"; }

// Certificate and key in one file, so that they appear together. Nothing if there is no such file.
Result<std::optional<Authority>> load(const Descriptor& directory, const std::string& path, unsigned generation) {
  const std::string name = file_name(generation);
  const std::string shown = development_file(path, generation);
  auto text =
      read_file(directory.number(), name, shown, {.max_bytes = kMaxFileBytes, .readers = Readers::owner, .ours = true});
  if (!text) return std::unexpected(text.error());
  if (!*text) return std::nullopt;
  auto authority = Authority::from_pem((*text)->view(), (*text)->view());
  if (!authority) {
    return std::unexpected(Error(Code::invalid_argument, shown + " is no development authority (" +
                                                             std::string(authority.error().message()) +
                                                             "): remove the directory to start anew"));
  }
  return std::move(*authority);
}

Result<bool> make(const Descriptor& directory, const std::string& path, unsigned generation,
                  std::int64_t wall_seconds) {
  auto authority =
      Authority::create({.name = "Weir development authority " + std::to_string(generation),
                         .validity = {wall_seconds - kDevelopmentSkewSeconds, wall_seconds + kDevelopmentSeconds}});
  if (!authority) return std::unexpected(authority.error());
  const WipedText key(authority->key_pem());
  std::string both = authority->certificate_pem();
  both.reserve(both.size() + key.view().size());  // so that no piece of the key is left behind
  both += key.view();
  const WipedText content(std::move(both));
  return create_file_once(directory.number(), file_name(generation), development_file(path, generation),
                          content.view());
}

bool good_at(const Certificate& certificate, std::int64_t wall_seconds) {
  return certificate.not_before_seconds() <= wall_seconds && wall_seconds <= certificate.not_after_seconds();
}

}  // namespace

std::string development_directory(const std::string& given) {
  if (!given.empty()) return given;
  std::error_code error;
  std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error) base = "/tmp";
  return (base / ("weir-" + std::to_string(::geteuid()))).string();
}

Result<Development> open_development(const std::string& directory, std::int64_t wall_seconds) {
  auto opened = open_private_directory(directory);
  if (!opened) return std::unexpected(opened.error());
  std::string roots;
  std::optional<Authority> latest;
  for (unsigned generation = 1; generation <= kMaxGenerations; ++generation) {
    auto found = load(*opened, directory, generation);
    if (!found) return std::unexpected(found.error());
    if (*found) {
      latest = std::move(**found);
      // Those who started earlier may still show certificates of the one before.
      if (good_at(latest->certificate(), wall_seconds)) roots += latest->certificate_pem();
      continue;
    }
    const bool usable = latest && good_at(latest->certificate(), wall_seconds) &&
                        good_at(latest->certificate(), wall_seconds + kDevelopmentRenewSeconds);
    if (!usable) {
      auto made = make(*opened, directory, generation, wall_seconds);
      if (!made) return std::unexpected(made.error());
      --generation;  // whoever made it, read it now
      continue;
    }
    const std::int64_t until_seconds = latest->certificate().not_after_seconds();
    auto issued = latest->issue({.names = {kDevelopmentName, "localhost", "127.0.0.1", "::1"},
                                 .validity = {wall_seconds - kDevelopmentSkewSeconds, until_seconds}});
    if (!issued) return std::unexpected(issued.error());
    const WipedText key(std::move(issued->key_pem));
    auto credentials = Credentials::from_pem(issued->chain_pem, key.view(), roots, true);
    if (!credentials) return std::unexpected(credentials.error());
    return Development{.credentials = std::move(*credentials),
                       .generation = generation - 1,
                       .renew_at_seconds = until_seconds - kDevelopmentRenewSeconds};
  }
  return std::unexpected(
      Error(Code::invalid_argument, directory + " holds too many development authorities: remove it to start anew"));
}

std::string development_file(const std::string& directory, unsigned generation) {
  return directory + "/" + file_name(generation);
}

}  // namespace weir::handshake
