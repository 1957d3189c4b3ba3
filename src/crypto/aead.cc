#include "crypto/aead.h"

#include <algorithm>

#include "crypto/aead_backend.h"

namespace weir::crypto {

std::vector<BackendInfo> available_backends() {
  std::vector<BackendInfo> found;
#ifdef WEIR_HAVE_IPSEC_MB
  if (const auto info = ipsec_mb_info()) found.push_back(*info);
#endif
  found.push_back(openssl_info());
  return found;
}

BackendInfo default_backend() { return available_backends().front(); }

std::unique_ptr<Aead> Aead::create(Backend backend) {
  switch (backend) {
    case Backend::ipsec_mb:
#ifdef WEIR_HAVE_IPSEC_MB
      return create_ipsec_mb();
#else
      return nullptr;
#endif
    case Backend::openssl:
      return create_openssl();
  }
  return nullptr;
}

void leave_zeros(std::byte* to, std::size_t bytes, std::byte* tag) {
  std::fill_n(to, bytes, std::byte{});
  std::fill_n(tag, kTagBytes, std::byte{});
}

}  // namespace weir::crypto
