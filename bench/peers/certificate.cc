#include "certificate.h"

#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <memory>

#include "harness.h"

namespace weir::bench {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File create(const std::string& path) {
  int descriptor = open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) fail_with_errno("cannot write " + path);
  return File(fdopen(descriptor, "w"), std::fclose);
}

void need(bool success, const char* what) {
  if (!success) fail(std::string("making the certificate failed: ") + what);
}

}  // namespace

void write_certificate(const std::string& directory) {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  need(key && certificate, "allocation");
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86'400);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto* host = reinterpret_cast<const unsigned char*>("localhost");
  need(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, host, -1, -1, 0) == 1, "name");
  need(X509_set_issuer_name(certificate.get(), name) == 1, "issuer");
  need(X509_set_pubkey(certificate.get(), key.get()) == 1, "public key");

  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate.get(), certificate.get(), nullptr, nullptr, 0);
  struct Extension {
    int kind;
    const char* value;
  };
  for (const Extension& wanted : {Extension{NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1"},
                                  Extension{NID_basic_constraints, "critical,CA:TRUE"}}) {
    std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension(
        X509V3_EXT_conf_nid(nullptr, &context, wanted.kind, wanted.value), X509_EXTENSION_free);
    need(extension && X509_add_ext(certificate.get(), extension.get(), -1) == 1, "extension");
  }
  need(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "signature");

  File key_file = create(directory + "/key.pem");
  need(PEM_write_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1, "key.pem");
  File certificate_file = create(directory + "/certificate.pem");
  need(PEM_write_X509(certificate_file.get(), certificate.get()) == 1, "certificate.pem");
}

}  // namespace weir::bench
