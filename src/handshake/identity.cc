#include "handshake/identity.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "crypto/entropy.h"
#include "crypto/hkdf.h"
#include "handshake/development.h"

namespace weir {

namespace {

using detail::IdentityDescription;

std::shared_ptr<IdentityDescription> copy_of(const IdentityDescription* description) {
  return description == nullptr ? std::make_shared<IdentityDescription>()
                                : std::make_shared<IdentityDescription>(*description);
}

std::shared_ptr<IdentityDescription> make(IdentityDescription::Kind kind, std::string certificate, std::string key,
                                          std::string roots) {
  auto made = std::make_shared<IdentityDescription>();
  made->kind = kind;
  made->certificate = std::move(certificate);
  made->key = std::move(key);
  made->roots = std::move(roots);
  return made;
}

}  // namespace

detail::IdentityDescription::~IdentityDescription() {
  crypto::wipe({reinterpret_cast<std::byte*>(key.data()), key.size()});
}

Identity Identity::from_files(std::string certificate, std::string key, std::string roots) {
  return Identity(make(IdentityDescription::Kind::files, std::move(certificate), std::move(key), std::move(roots)));
}

Identity Identity::from_pem(std::string certificate, std::string key, std::string roots) {
  return Identity(make(IdentityDescription::Kind::pem, std::move(certificate), std::move(key), std::move(roots)));
}

Identity Identity::development(std::string directory) {
  auto made = make(IdentityDescription::Kind::development, {}, {}, {});
  made->directory = std::move(directory);
  return Identity(std::move(made));
}

Identity Identity::allow(std::vector<std::string> names) const {
  auto changed = copy_of(description());
  if (!changed->allow) changed->allow.emplace();
  std::ranges::move(names, std::back_inserter(*changed->allow));
  return Identity(std::move(changed));
}

Identity Identity::deny(std::vector<std::string> names) const {
  auto changed = copy_of(description());
  std::ranges::move(names, std::back_inserter(changed->deny));
  return Identity(std::move(changed));
}

Identity Identity::authorise(std::function<bool(std::string_view name)> may_call_us) const {
  auto changed = copy_of(description());
  changed->authorise = std::move(may_call_us);
  return Identity(std::move(changed));
}

Identity Identity::signer_file(std::string path) const {
  auto changed = copy_of(description());
  changed->signer_file = std::move(path);
  return Identity(std::move(changed));
}

Identity Identity::key_log(std::string path) const {
  auto changed = copy_of(description());
  changed->key_log = std::move(path);
  return Identity(std::move(changed));
}

bool Identity::is_development() const {
  return description_ != nullptr && description_->kind == IdentityDescription::Kind::development;
}

}  // namespace weir

namespace weir::handshake {
namespace {

using Kind = detail::IdentityDescription::Kind;

Error invalid(std::string sentence) { return Error(Code::invalid_argument, std::move(sentence)); }

Result<void> check_list(const std::vector<std::string>& list, std::string_view what) {
  for (const std::string& name : list) {
    if (!parse_ip(name) && !is_host_name(name, true)) {
      return std::unexpected(invalid("\"" + printable(name) + "\" in the list of names to " + std::string(what) +
                                     " is neither a host name, nor \"*.\" and one, nor an IP address"));
    }
  }
  return {};
}

Result<WipedText> read_whole(const std::string& path, Readers readers) {
  if (path.empty()) return std::unexpected(invalid("the identity lacks the path of a file"));
  auto text = read_file(AT_FDCWD, path, path, {.max_bytes = kMaxPemBytes, .readers = readers});
  if (!text) return std::unexpected(text.error());
  if (!*text) return std::unexpected(Error(Code::system, "cannot read " + path + ": there is no such file"));
  return std::move(**text);
}

}  // namespace

std::int64_t wall_clock_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Result<std::unique_ptr<IdentitySource>> IdentitySource::open(const Identity& identity, std::int64_t wall_seconds) {
  if (!identity.is_set()) return std::unexpected(invalid("there is no identity to open"));
  const detail::IdentityDescription& description = *identity.description();
  if (description.allow) {
    if (auto checked = check_list(*description.allow, "allow"); !checked) return std::unexpected(checked.error());
  }
  if (auto checked = check_list(description.deny, "deny"); !checked) return std::unexpected(checked.error());

  std::unique_ptr<IdentitySource> source(
      new IdentitySource(std::make_shared<const detail::IdentityDescription>(description)));
  if (description.kind == Kind::development) {
    source->directory_ = development_directory(description.directory);
    source->warning_ = "this pool has a development identity: every process that can read " + source->directory_ +
                       " is accepted under any name; use Identity::from_files() elsewhere";
  }
  auto loaded = source->load(wall_seconds);
  if (!loaded) return std::unexpected(loaded.error());
  source->loaded_ = std::move(*loaded);
  if (auto signer = source->load_signer(); !signer) return std::unexpected(signer.error());
  return source;
}

Result<IdentitySource::Loaded> IdentitySource::load(std::int64_t wall_seconds) const {
  if (description_->kind == Kind::development) {
    auto made = open_development(directory_, wall_seconds);
    if (!made) return std::unexpected(made.error());
    return Loaded{.credentials = std::move(made->credentials),
                  // Whoever has made the next authority by now is noticed later: no stamp for that.
                  .stamps = {stamp_of(development_file(directory_, made->generation))},
                  .generation = made->generation,
                  .renew_at_seconds = made->renew_at_seconds};
  }
  Result<Loaded> loaded = load_files();
  if (!loaded) return loaded;
  const Certificate& own = loaded->credentials->certificate();
  if (wall_seconds > own.not_after_seconds()) {
    return std::unexpected(
        invalid("our own certificate \"" + own.subject() + "\" expired at " + utc_text(own.not_after_seconds())));
  }
  if (wall_seconds < own.not_before_seconds()) {
    return std::unexpected(invalid("our own certificate \"" + own.subject() + "\" is not valid before " +
                                   utc_text(own.not_before_seconds()) + " (here it is " + utc_text(wall_seconds) +
                                   ")"));
  }
  return loaded;
}

Result<IdentitySource::Loaded> IdentitySource::load_files() const {
  const detail::IdentityDescription& from = *description_;
  Loaded loaded;
  if (from.kind == Kind::pem) {
    auto made = Credentials::from_pem(from.certificate, from.key, from.roots);
    if (!made) return std::unexpected(made.error());
    loaded.credentials = std::move(*made);
    return loaded;
  }
  // Taken before reading: a file that changes meanwhile is then read again.
  loaded.stamps = stamps(0);
  auto certificate = read_whole(from.certificate, Readers::anybody);
  if (!certificate) return std::unexpected(certificate.error());
  auto key = read_whole(from.key, Readers::owner_and_group);
  if (!key) return std::unexpected(key.error());
  auto roots = read_whole(from.roots, Readers::anybody);
  if (!roots) return std::unexpected(roots.error());
  auto made = Credentials::from_pem(certificate->view(), key->view(), roots->view());
  if (!made) {
    return std::unexpected(Error(made.error().code(), "cannot use " + from.certificate + ", " + from.key + " and " +
                                                          from.roots + ": " + std::string(made.error().message())));
  }
  loaded.credentials = std::move(*made);
  return loaded;
}

IdentitySource::Stamps IdentitySource::stamps(unsigned generation) const {
  switch (description_->kind) {
    case Kind::files:
      return {stamp_of(description_->certificate), stamp_of(description_->key), stamp_of(description_->roots)};
    case Kind::development:
      return {stamp_of(development_file(directory_, generation)),
              stamp_of(development_file(directory_, generation + 1))};
    case Kind::pem:
      break;
  }
  return {};
}

bool IdentitySource::is_stale(std::int64_t wall_seconds) const {
  return wall_seconds >= loaded_.renew_at_seconds || stamps(loaded_.generation) != loaded_.stamps;
}

std::shared_ptr<const Credentials> IdentitySource::current() const {
  std::lock_guard lock(mutex_);
  return loaded_.credentials;
}

bool IdentitySource::reload_if_changed(std::int64_t wall_seconds) {
  if (!is_stale(wall_seconds)) return false;
  auto fresh = load(wall_seconds);
  if (!fresh) {
    if (last_complaint_ != fresh.error().message()) {
      last_complaint_ = fresh.error().message();
      complaint_ = "the identity could not be loaded again, the previous one stays: " + last_complaint_;
    }
    return false;
  }
  last_complaint_.clear();
  std::lock_guard lock(mutex_);
  loaded_ = std::move(*fresh);
  return true;
}

bool IdentitySource::denies(const Names& names) const {
  return !names.development &&
         std::ranges::any_of(description_->deny, [&](const std::string& pattern) { return names.matches(pattern); });
}

bool IdentitySource::allows(const Names& names) const {
  const detail::IdentityDescription& rules = *description_;
  // All development identities have the same names, so the lists cannot tell them apart.
  if (!names.development) {
    auto matches = [&](const std::string& pattern) { return names.matches(pattern); };
    if (denies(names)) return false;
    if (rules.allow && std::ranges::none_of(*rules.allow, matches)) return false;
  }
  if (!rules.authorise) return true;
  try {
    const std::vector<std::string> all = names.all();
    if (all.empty()) return rules.authorise("");
    return std::ranges::any_of(all, [&](const std::string& name) { return rules.authorise(name); });
  } catch (...) {  // whatever went wrong in there, it was not a yes
    return false;
  }
}

Result<void> IdentitySource::load_signer() {
  const std::string& path = description_->signer_file;
  if (path.empty() && description_->kind == Kind::development) {  // its key exists in memory only
    crypto::SystemEntropy{}.fill(signer_.writable());
    return {};
  }
  if (path.empty()) {
    // From the private key, so that a process that is started again with the same key has the same signer.
    const auto derive = [this](std::string_view key) {
      constexpr std::string_view kSalt = "weir 1 signer of a private key";
      signer_ = crypto::hkdf_extract(std::as_bytes(std::span(kSalt)), std::as_bytes(std::span(key)));
    };
    if (description_->kind == Kind::pem) {
      derive(description_->key);
      return {};
    }
    auto key = read_whole(description_->key, Readers::owner_and_group);
    if (!key) return std::unexpected(key.error());
    derive(key->view());
    return {};
  }
  // Twice at most: missing, made (by us or by somebody faster), read.
  for (int attempt = 0; attempt < 2; ++attempt) {
    // Larger files are read a little further, to tell them from good ones.
    auto text = read_file(AT_FDCWD, path, path,
                          {.max_bytes = 4 * crypto::kSecretBytes, .readers = Readers::owner, .ours = true});
    if (!text) return std::unexpected(text.error());
    if (*text) {
      const std::string_view bytes = (*text)->view();
      if (bytes.size() != crypto::kSecretBytes) {
        return std::unexpected(invalid(path + " is no signer file: it has " + std::to_string(bytes.size()) +
                                       " bytes instead of 32; remove it and another is made"));
      }
      std::ranges::copy(std::as_bytes(std::span(bytes)), signer_.writable().begin());
      return {};
    }
    crypto::Secret fresh;
    crypto::SystemEntropy{}.fill(fresh.writable());
    const WipedText content(std::string(reinterpret_cast<const char*>(fresh.bytes().data()), fresh.bytes().size()));
    auto made = create_file_once(AT_FDCWD, path, path, content.view());
    if (!made) return std::unexpected(made.error());
  }
  return std::unexpected(Error(Code::system, path + " is there and is not: cannot make the signer file"));
}

}  // namespace weir::handshake
