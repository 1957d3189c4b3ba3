// IdentitySource: a pool's identity while it is open: the credentials of the moment and the rules for callers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crypto/secret.h"
#include "handshake/credentials.h"
#include "handshake/names.h"
#include "handshake/private_file.h"
#include "weir/error.h"
#include "weir/identity.h"

namespace weir::detail {

// What an Identity says, as it was told.
struct IdentityDescription {
  enum class Kind : std::uint8_t { files, pem, development };

  Kind kind = Kind::files;
  std::string certificate;  // a path or PEM
  std::string key;
  std::string roots;
  std::string directory;
  std::optional<std::vector<std::string>> allow;
  std::vector<std::string> deny;
  std::function<bool(std::string_view name)> authorise;
  std::string signer_file;
  std::string key_log;

  IdentityDescription() = default;
  IdentityDescription(const IdentityDescription&) = default;
  ~IdentityDescription();  // wipes the key
};

}  // namespace weir::detail

namespace weir::handshake {

// Seconds since 1970 (UTC) by the system's clock.
std::int64_t wall_clock_seconds();

// One per pool. reload_if_changed() and complaint() belong to the thread that makes handshakes; the rest may be called
// by any.
class IdentitySource {
 public:
  // Reads everything that the identity names. A missing signer file is made.
  static Result<std::unique_ptr<IdentitySource>> open(const Identity& identity, std::int64_t wall_seconds);

  std::shared_ptr<const Credentials> current() const;

  // To be called every few seconds. Looks at the files (or the development directory) and loads them if they are not
  // what they were: true if current() is new. New files that cannot be used, half written ones for example, change
  // nothing and are looked at again next time.
  bool reload_if_changed(std::int64_t wall_seconds);
  // Why the last reload failed, told once for each reason; empty otherwise.
  std::string complaint() { return std::exchange(complaint_, {}); }

  // Whether a peer that has proven these names may call us.
  bool allows(const Names& names) const;
  // Whether it may not even be called: its certificate was revoked.
  bool denies(const Names& names) const;

  // Keys of resets are derived from it. From the signer file, otherwise from the private key.
  const crypto::Secret& signer() const { return signer_; }
  const std::string& key_log_path() const { return description_->key_log; }

  bool is_development() const { return description_->kind == detail::IdentityDescription::Kind::development; }
  // What a development identity means, to be said loudly; empty for others.
  const std::string& warning() const { return warning_; }

 private:
  using Stamps = std::array<FileStamp, 3>;
  struct Loaded {
    std::shared_ptr<const Credentials> credentials;
    Stamps stamps{};
    unsigned generation = 0;
    std::int64_t renew_at_seconds = INT64_MAX;
  };

  explicit IdentitySource(std::shared_ptr<const detail::IdentityDescription> description)
      : description_(std::move(description)) {}
  Result<Loaded> load(std::int64_t wall_seconds) const;
  Result<Loaded> load_files() const;
  Stamps stamps(unsigned generation) const;
  bool is_stale(std::int64_t wall_seconds) const;
  Result<void> load_signer();

  std::shared_ptr<const detail::IdentityDescription> description_;
  std::string directory_;  // of a development identity
  std::string warning_;
  crypto::Secret signer_;
  Loaded loaded_;  // its credentials are guarded by mutex_, the rest belongs to the reloading thread
  mutable std::mutex mutex_;
  std::string complaint_;
  std::string last_complaint_;
};

}  // namespace weir::handshake
