// Identity: who a pool is, and whom it believes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weir {

namespace detail {
struct IdentityDescription;
}

// A cheap value that says where an identity comes from. Nothing is read before Pool::open(), which reports what is
// wrong. Both sides of every handshake show a certificate; a peer's must lead to our roots and prove the name that
// it was called by. docs/identity.md shows how to make certificates.
//
//   .identity = weir::Identity::from_files("node.crt", "node.key", "ca.crt").allow({"*.rack1.example"}),
class Identity {
 public:
  // No identity: the pool needs a shared secret instead.
  Identity() = default;

  // PEM files: our certificate (followed by intermediate ones, if any), its private key, and the roots that peers'
  // certificates must lead to. When the files change they are loaded again, without disturbing a call.
  static Identity from_files(std::string certificate, std::string key, std::string roots);
  // The same as texts.
  static Identity from_pem(std::string certificate, std::string key, std::string roots);
  // For development only: certificates are made up, and every process that can read the directory is trusted to be
  // whoever it says. By default the directory is one that all programs of this user share, below the system's directory
  // for temporary files.
  static Identity development(std::string directory = {});

  // Who may call us: host names, "*.rack1.example" for every name with one more label, or IP addresses; certificates
  // must prove one of them. Without a list, everybody whom our roots vouch for. Development identities prove all names.
  Identity allow(std::vector<std::string> names) const;
  // Who may not, whatever else says so: a certificate with one of these names was revoked. Such peers are not called
  // either.
  Identity deny(std::vector<std::string> names) const;
  // Asked after the lists, for each name that a peer's certificate proves, until one is accepted; also for peers that
  // were called, who may use the same handshake to call back. Runs on the handshake thread and must not block: no
  // handshake is made meanwhile, the watchdog reports it, and Pool::close() waits for it until its deadline only. After
  // that it may still be running, so it must own what it uses.
  Identity authorise(std::function<bool(std::string_view name)> may_call_us) const;

  // Keeps the secret that lets peers trust a restarted pool's word that it forgot them. 32 bytes, made if missing.
  // Without a file the secret is derived from the private key: only a restart with another key is noticed late. With
  // fixed ports (Config::data_port) peers notice a restart within a round trip; otherwise when probes go unanswered or
  // the port turns out to be closed.
  Identity signer_file(std::string path) const;
  // Appends TLS secrets to this file, for tools that decrypt captured packets. Whoever reads it can read all traffic.
  Identity key_log(std::string path) const;

  bool is_set() const { return description_ != nullptr; }
  bool is_development() const;

  // For the library.
  const detail::IdentityDescription* description() const { return description_.get(); }

 private:
  explicit Identity(std::shared_ptr<const detail::IdentityDescription> description)
      : description_(std::move(description)) {}

  std::shared_ptr<const detail::IdentityDescription> description_;
};

}  // namespace weir
