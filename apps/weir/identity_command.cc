// `weir identity`: a small certificate authority in a directory, certificates for nodes, and a look at any of them.
#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/format.h"
#include "apps/weir/json.h"
#include "handshake/authority.h"
#include "handshake/certificate.h"
#include "handshake/credentials.h"
#include "handshake/identity.h"
#include "handshake/private_file.h"

namespace weir::command {

namespace {

using namespace weir::handshake;

constexpr std::int64_t kDaySeconds = 24 * 60 * 60;
constexpr std::int64_t kSkewSeconds = 10 * 60;  // a node whose clock is behind can use its certificate at once
constexpr std::size_t kMaxShown = 1024;         // certificates in one file

const std::map<std::string, KeyType> kKeyTypes{{"ed25519", KeyType::ed25519}, {"p256", KeyType::p256}};

struct NewAuthorityOptions {
  std::string directory;
  std::string name = "Weir authority";
  int days = 3650;
  std::string key = "ed25519";
};

struct IssueOptions {
  std::string directory;
  std::vector<std::string> names;
  std::vector<std::string> addresses;
  int days = 365;
  std::string key = "ed25519";
  std::string out;
};

struct ShowOptions {
  std::string file;
  bool json = false;
};

// Not fmt::join(): g++ 12 warns of what it does inside.
std::string list_of(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    if (!all.empty()) all += ", ";
    all += text;
  }
  return all;
}

Validity validity_from_now(int days) {
  const std::int64_t now_seconds = wall_clock_seconds();
  return {now_seconds - kSkewSeconds, now_seconds + days * kDaySeconds};
}

struct NewFile {
  std::string path;
  std::string_view content;
  mode_t mode;
};

void make_directory(const std::string& path, bool secret) {
  if (std::filesystem::is_directory(path)) return;
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail(fmt::format("cannot create the directory {}: {}", path, error.message()));
  if (secret) std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
}

// All of them or none: what is there already is never touched.
void write_files(const std::vector<NewFile>& files) {
  std::vector<std::string> written;
  auto take_back_and_fail = [&](const std::string& sentence) {
    for (const std::string& path : written) std::filesystem::remove(path);
    fail(sentence);
  };
  for (const NewFile& file : files) {
    const Result<bool> created = create_file_once(AT_FDCWD, file.path, file.path, file.content, file.mode);
    if (!created) take_back_and_fail(created.error().to_string());
    if (!*created) {
      take_back_and_fail(fmt::format("{} exists already and is not overwritten; choose another directory", file.path));
    }
    written.push_back(file.path);
  }
}

WipedText read_or_fail(const std::string& path, Readers readers) {
  auto text = value_or_fail(read_file(AT_FDCWD, path, path, {.max_bytes = kMaxPemBytes, .readers = readers}));
  if (!text) fail(fmt::format("cannot read {}: there is no such file", path));
  return std::move(*text);
}

void make_new_authority(const NewAuthorityOptions& options) {
  const Authority authority = value_or_fail(Authority::create(
      {.name = options.name, .validity = validity_from_now(options.days), .key = kKeyTypes.at(options.key)}));
  make_directory(options.directory, true);
  const WipedText key(authority.key_pem());
  const std::string certificate = authority.certificate_pem();
  write_files({{options.directory + "/ca.key", key.view(), 0600}, {options.directory + "/ca.crt", certificate, 0644}});
  fmt::print(
      "Made the authority \"{}\", valid until {}.\n"
      "  {}/ca.crt  every node needs it\n"
      "  {}/ca.key  whoever has it can be anybody: keep it off the nodes\n"
      "Next: weir identity issue {} --name HOST\n",
      options.name, utc_text(authority.certificate().not_after_seconds()), options.directory, options.directory,
      options.directory);
}

void issue_certificate(const IssueOptions& options) {
  std::vector<std::string> names = options.names;
  names.insert(names.end(), options.addresses.begin(), options.addresses.end());
  if (names.empty()) fail_use("a node needs a name: give --name HOST, or --address IP");
  for (const std::string& address : options.addresses) {
    if (!parse_ip(address)) fail_use(fmt::format("\"{}\" is not an IP address", printable(address)));
  }
  const WipedText key = read_or_fail(options.directory + "/ca.key", Readers::owner_and_group);
  const WipedText certificate = read_or_fail(options.directory + "/ca.crt", Readers::anybody);
  const Authority authority = value_or_fail(Authority::from_pem(certificate.view(), key.view()));
  const Validity validity = validity_from_now(options.days);
  Issued issued =
      value_or_fail(authority.issue({.names = names, .validity = validity, .key = kKeyTypes.at(options.key)}));
  const WipedText node_key(std::move(issued.key_pem));

  std::string out = options.out;
  if (out.empty()) {
    out = names.front();
    std::ranges::replace(out, '*', '_');
  }
  make_directory(out, false);
  write_files({{out + "/node.key", node_key.view(), 0600},
               {out + "/node.crt", issued.chain_pem, 0644},
               {out + "/ca.crt", certificate.view(), 0644}});
  const auto made = value_or_fail(Certificate::list_from_pem(issued.chain_pem, kMaxChain, out));
  if (made.front().not_after_seconds() < validity.until_seconds) {
    note("the authority itself ends sooner than that; so does the certificate");
  }
  fmt::print(
      "Made a certificate for {}, valid until {}.\n"
      "  {}/node.crt, {}/node.key, {}/ca.crt\n"
      "Use them: weir::Identity::from_files(\"node.crt\", \"node.key\", \"ca.crt\")\n",
      list_of(names), utc_text(made.front().not_after_seconds()), out, out, out);
}

// What a certificate says, read once for both ways to print it.
struct Shown {
  Shown(const Certificate& certificate, std::int64_t seconds_now)
      : subject(certificate.subject()),
        issuer(certificate.issuer()),
        purposes(certificate.purposes()),
        authority(certificate.is_authority()),
        key(certificate.key_type()),
        serial(certificate.serial()),
        fingerprint(certificate.fingerprint()),
        not_before_seconds(certificate.not_before_seconds()),
        not_after_seconds(certificate.not_after_seconds()),
        now_seconds(seconds_now) {
    if (const Result<Names> read = certificate.names()) {
      names = read->all();
    } else {
      trouble = read.error().message();
    }
    if (trouble.empty()) trouble = certificate.key_weakness();
    if (trouble.empty() && !certificate.is_self_issued()) trouble = certificate.signature_weakness();
  }

  bool valid() const { return not_before_seconds <= now_seconds && now_seconds <= not_after_seconds; }
  // Whole days, towards zero.
  std::int64_t days_left() const { return (not_after_seconds - now_seconds) / kDaySeconds; }
  std::string state() const {
    if (now_seconds > not_after_seconds)
      return fmt::format("EXPIRED {} ago", counted(static_cast<std::uint64_t>(-days_left()), "day"));
    if (now_seconds < not_before_seconds) return "NOT YET VALID";
    return fmt::format("{} left", counted(static_cast<std::uint64_t>(days_left()), "day"));
  }

  std::string subject, issuer;
  std::vector<std::string> names, purposes;
  bool authority;
  std::string key, serial, fingerprint, trouble;
  std::int64_t not_before_seconds, not_after_seconds, now_seconds;
};

std::string json_list(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(json_string(text));
  return '[' + list_of(quoted) + ']';
}

std::string as_json(const Shown& shown) {
  return JsonObject()
      .add("subject", shown.subject)
      .add_text("names", json_list(shown.names))
      .add("authority", shown.authority)
      .add_text("purposes", json_list(shown.purposes))
      .add("not_before", shown.not_before_seconds)
      .add("not_after", shown.not_after_seconds)
      .add("valid", shown.valid())
      .add("days_left", shown.days_left())
      .add("key", shown.key)
      .add("issuer", shown.issuer)
      .add("serial", shown.serial)
      .add("fingerprint_sha256", shown.fingerprint)
      .add("trouble", shown.trouble)
      .text();
}

void print(const Shown& shown) {
  auto line = [](std::string_view label, std::string_view text) { fmt::print("{:<12} {}\n", label, text); };
  line("Subject", shown.subject);
  line("Names", shown.names.empty() ? "none" : list_of(shown.names));
  line("Valid", fmt::format("{} to {} ({})", utc_text(shown.not_before_seconds), utc_text(shown.not_after_seconds),
                            shown.state()));
  line("For", shown.authority          ? "issuing certificates"
              : shown.purposes.empty() ? "any purpose"
                                       : list_of(shown.purposes));
  line("Key", shown.key);
  line("Issuer", shown.issuer);
  line("Serial", shown.serial);
  line("Fingerprint", "SHA-256 " + shown.fingerprint);
  if (!shown.trouble.empty()) line("Trouble", "peers will refuse it: " + shown.trouble);
}

void show(const ShowOptions& options) {
  const WipedText text = read_or_fail(options.file, Readers::anybody);
  const auto certificates = value_or_fail(Certificate::list_from_pem(text.view(), kMaxShown, options.file));
  const std::int64_t now_seconds = wall_clock_seconds();
  std::vector<std::string> objects;
  bool first = true;
  for (const Certificate& certificate : certificates) {
    const Shown shown(certificate, now_seconds);
    if (options.json) {
      objects.push_back(as_json(shown));
      continue;
    }
    if (!std::exchange(first, false)) fmt::print("\n");
    print(shown);
  }
  if (options.json) {
    fmt::print("{}\n", JsonObject().add_text("certificates", '[' + list_of(objects) + ']').text());
  }
}

void add_key_option(CLI::App* command, std::string& key) {
  command->add_option("--key", key, "Kind of key: ed25519 or p256")
      ->check(CLI::IsMember({"ed25519", "p256"}))
      ->type_name("KIND")
      ->capture_default_str();
}

void add_days_option(CLI::App* command, int& days) {
  command->add_option("--days", days, "How long it is valid")
      ->check(CLI::Range(1, 36500))
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace

void add_identity_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("identity", "Make and look at the certificates that peers show each other");
  command->require_subcommand(1);

  auto authority = std::make_shared<NewAuthorityOptions>();
  CLI::App* new_ca = command->add_subcommand("new-ca", "Make a certificate authority: ca.crt and ca.key");
  new_ca->add_option("directory", authority->directory, "Where; made if missing")->required()->type_name("DIR");
  new_ca->add_option("--name", authority->name, "Its name, for people")->type_name("NAME")->capture_default_str();
  add_days_option(new_ca, authority->days);
  add_key_option(new_ca, authority->key);
  new_ca->callback([authority] { make_new_authority(*authority); });

  auto node = std::make_shared<IssueOptions>();
  CLI::App* issue = command->add_subcommand("issue", "Make a node's certificate: node.crt, node.key and ca.crt");
  issue->add_option("directory", node->directory, "The authority's")->required()->type_name("DIR");
  issue->add_option("--name", node->names, "Host name that it proves, or *.DOMAIN; may be repeated")
      ->type_name("HOST")
      ->allow_extra_args(false);
  issue->add_option("--address", node->addresses, "IP address that it proves; may be repeated")
      ->type_name("IP")
      ->allow_extra_args(false);
  add_days_option(issue, node->days);
  add_key_option(issue, node->key);
  issue->add_option("--out", node->out, "Directory for the files [the first name]")->type_name("DIR");
  issue->callback([node] { issue_certificate(*node); });

  auto file = std::make_shared<ShowOptions>();
  CLI::App* look = command->add_subcommand("show", "Tell what the certificates in a file say");
  look->add_option("file", file->file, "A PEM file")->required()->type_name("FILE");
  look->add_flag("--json", file->json, "Print one JSON object");
  look->callback([file] { show(*file); });
}

}  // namespace weir::command
