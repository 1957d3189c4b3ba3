// AES-128-GCM and AES-128-CBC through OpenSSL's EVP interface.
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>
#include <cstring>

#include "crypto/aead_backend.h"

namespace weir::crypto {
namespace {

struct CipherDeleter {
  void operator()(EVP_CIPHER* cipher) const { EVP_CIPHER_free(cipher); }
};
struct ContextDeleter {
  // Wipes the key schedule too.
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Cipher = std::unique_ptr<EVP_CIPHER, CipherDeleter>;
using Context = std::unique_ptr<EVP_CIPHER_CTX, ContextDeleter>;

enum class Direction : int { open = 0, seal = 1 };

const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

class alignas(64) OpensslKey final : public AeadKey {
 public:
  OpensslKey(const EVP_CIPHER* cipher, std::span<const std::byte, kKeyBytes> key)
      : context_(EVP_CIPHER_CTX_new()), guard_(key) {
    WEIR_CHECK(context_ != nullptr, "out of memory for a cipher context");
    const int done = EVP_CipherInit_ex2(context_.get(), cipher, raw(key.data()), nullptr, 1, nullptr);
    WEIR_CHECK(done == 1, "OpenSSL would not take an AES-128-GCM key");
  }

  void rekey(std::span<const std::byte, kKeyBytes> key) override {
    guard_.become(key);
    // The context knows its cipher: naming it again would have it made anew.
    const int done = EVP_CipherInit_ex2(context_.get(), nullptr, raw(key.data()), nullptr, 1, nullptr);
    WEIR_CHECK(done == 1, "OpenSSL would not take another AES-128-GCM key");
  }

  void seal(const Nonce& nonce, ByteSpan aad, MutableByteSpan text, std::byte* tag) override {
    seal_into(nonce, aad, text, text.data(), tag);
  }

  bool open(const Nonce& nonce, ByteSpan aad, MutableByteSpan text, const std::byte* tag) override {
    return open_into(nonce, aad, text, text.data(), tag);
  }

  void seal_into(const Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to, std::byte* tag) override {
    check_sizes(aad, from);
    if (!guard_.may_seal(nonce)) [[unlikely]]
      return leave_zeros(to, from.size(), tag);
    encrypt(nonce, aad, from, to, tag);
  }

  bool open_into(const Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to, const std::byte* tag) override {
    check_sizes(aad, from);
    feed(Direction::open, nonce, aad, from, to);
    // The interface wants a mutable pointer; it only reads.
    std::array<std::byte, kTagBytes> expected;
    std::memcpy(expected.data(), tag, kTagBytes);
    const int given = EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data());
    WEIR_CHECK(given == 1, "OpenSSL would not take a tag");
    unsigned char nothing[kTagBytes];
    int written = 0;
    if (EVP_CipherFinal_ex(context_.get(), nothing, &written) == 1) [[likely]]
      return true;
    if (!from.empty()) std::memset(to, 0, from.size());
    return false;
  }

  void mac(const Nonce& nonce, ByteSpan aad, std::byte* tag) override { seal(nonce, aad, {}, tag); }

  bool verify_mac(const Nonce& nonce, ByteSpan aad, const std::byte* tag) override { return open(nonce, aad, {}, tag); }

 private:
  void encrypt(const Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to, std::byte* tag) {
    feed(Direction::seal, nonce, aad, from, to);
    int written = 0;
    unsigned char nothing[kTagBytes];
    const int finished = EVP_CipherFinal_ex(context_.get(), nothing, &written);
    WEIR_CHECK(finished == 1, "OpenSSL failed to finish a seal");
    const int tagged = EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag);
    WEIR_CHECK(tagged == 1, "OpenSSL gave no tag");
  }

  void feed(Direction direction, const Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to) {
    EVP_CIPHER_CTX* const context = context_.get();
    // The key schedule stays: GCM uses the encrypting one both ways.
    const int begun =
        EVP_CipherInit_ex2(context, nullptr, nullptr, raw(nonce.data()), static_cast<int>(direction), nullptr);
    WEIR_CHECK(begun == 1, "OpenSSL would not take a nonce");
    int written = 0;
    if (!aad.empty()) {
      const int taken = EVP_CipherUpdate(context, nullptr, &written, raw(aad.data()), static_cast<int>(aad.size()));
      WEIR_CHECK(taken == 1, "OpenSSL would not take additional data");
    }
    if (!from.empty()) {
      const int taken = EVP_CipherUpdate(context, raw(to), &written, raw(from.data()), static_cast<int>(from.size()));
      WEIR_CHECK(taken == 1 && static_cast<std::size_t>(written) == from.size(), "OpenSSL stopped inside a text");
    }
  }

  Context context_;
  [[no_unique_address]] NonceGuard guard_;
};

class OpensslBlockKey final : public BlockKey {
 public:
  OpensslBlockKey(const EVP_CIPHER* cipher, std::span<const std::byte, kKeyBytes> key)
      : context_(EVP_CIPHER_CTX_new()) {
    WEIR_CHECK(context_ != nullptr, "out of memory for a cipher context");
    take(cipher, key);
  }
  ~OpensslBlockKey() override { wipe(vector_); }

  void rekey(std::span<const std::byte, kKeyBytes> key) override { take(nullptr, key); }

  // Padding would come at an end, and there is none: to switch it off would cost each new key as much as two blocks.
  // The context goes on from the last block that it made. To tell it a vector of zeros would cost more than a block;
  // to take that block out of the first one comes to the same.
  void chain(MutableByteSpan blocks) override {
    for (std::size_t i = 0; i < kBlockBytes; ++i) blocks[i] ^= vector_[i];
    const int size = static_cast<int>(blocks.size());
    int written = 0;
    const int done = EVP_EncryptUpdate(context_.get(), raw(blocks.data()), &written, raw(blocks.data()), size);
    WEIR_CHECK(done == 1 && written == size, "OpenSSL stopped inside a chain of blocks");
    std::ranges::copy(blocks.last(kBlockBytes), vector_.begin());
  }

 private:
  void take(const EVP_CIPHER* cipher, std::span<const std::byte, kKeyBytes> key) {
    vector_ = {};
    const int done = EVP_CipherInit_ex2(context_.get(), cipher, raw(key.data()), raw(vector_.data()), 1, nullptr);
    WEIR_CHECK(done == 1, "OpenSSL would not take an AES-128 key");
  }

  Context context_;
  std::array<std::byte, kBlockBytes> vector_{};
};

class OpensslAead final : public Aead {
 public:
  OpensslAead()
      : cipher_(EVP_CIPHER_fetch(nullptr, "AES-128-GCM", nullptr)),
        chain_(EVP_CIPHER_fetch(nullptr, "AES-128-CBC", nullptr)) {
    WEIR_CHECK(cipher_ != nullptr && chain_ != nullptr,
               "this OpenSSL has no AES-128-GCM or no AES-128-CBC; its default provider must be enabled");
  }

  std::unique_ptr<AeadKey> make_key(std::span<const std::byte, kKeyBytes> key) override {
    return std::make_unique<OpensslKey>(cipher_.get(), key);
  }
  std::unique_ptr<BlockKey> make_block_key(std::span<const std::byte, kKeyBytes> key) override {
    return std::make_unique<OpensslBlockKey>(chain_.get(), key);
  }
  BackendInfo info() const override { return openssl_info(); }

 private:
  Cipher cipher_;
  Cipher chain_;
};

}  // namespace

BackendInfo openssl_info() { return {Backend::openssl, "openssl", OpenSSL_version(OPENSSL_VERSION)}; }

std::unique_ptr<Aead> create_openssl() { return std::make_unique<OpensslAead>(); }

}  // namespace weir::crypto
