// AES-128-GCM and single blocks through the direct (not job-based) interface of intel-ipsec-mb.
#ifdef WEIR_HAVE_IPSEC_MB

#include <intel-ipsec-mb.h>
#include <wmmintrin.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "crypto/aead_backend.h"

namespace weir::crypto {
namespace {

struct ManagerDeleter {
  void operator()(IMB_MGR* manager) const { free_mb_mgr(manager); }
};
using Manager = std::unique_ptr<IMB_MGR, ManagerDeleter>;

struct ReadyManager {
  Manager manager;
  IMB_ARCH architecture = IMB_ARCH_NONE;
};

// Empty manager if the library would fall back to emulated AES or does not trust itself.
ReadyManager make_manager() {
  ReadyManager ready{Manager{alloc_mb_mgr(0)}};
  if (!ready.manager) return {};
  init_mb_mgr_auto(ready.manager.get(), &ready.architecture);
  const std::uint64_t features = ready.manager->features;
  constexpr std::uint64_t kNeeded = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
  const bool native = (features & kNeeded) == kNeeded && ready.architecture >= IMB_ARCH_SSE;
  const bool self_test_failed = (features & IMB_FEATURE_SELF_TEST) != 0 && (features & IMB_FEATURE_SELF_TEST_PASS) == 0;
  if (imb_get_errno(ready.manager.get()) != 0 || !native || self_test_failed) return {};
  return ready;
}

const char* architecture_name(IMB_ARCH architecture, std::uint64_t features) {
  const bool vector_aes = (features & IMB_FEATURE_VAES) != 0 && (features & IMB_FEATURE_VPCLMULQDQ) != 0;
  switch (architecture) {
    case IMB_ARCH_AVX512:
      // The library asks for these together before it takes its VAES code.
      return (features & IMB_CPUFLAGS_AVX512_T2) == IMB_CPUFLAGS_AVX512_T2 ? "AVX512 VAES" : "AVX512";
    case IMB_ARCH_AVX2:
      return vector_aes ? "AVX2 VAES" : "AVX2";
    case IMB_ARCH_AVX:
      return "AVX";
    default:
      return "SSE";
  }
}

std::uint8_t* raw(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }
const std::uint8_t* raw(const std::byte* bytes) { return reinterpret_cast<const std::uint8_t*>(bytes); }

class alignas(64) IpsecMbKey final : public AeadKey {
 public:
  // Keeps the functions, not the manager: they need no state of it, so a key can outlive its Aead.
  IpsecMbKey(const IMB_MGR& manager, std::span<const std::byte, kKeyBytes> key)
      : prepare_(manager.gcm128_pre), encrypt_(manager.gcm128_enc), decrypt_(manager.gcm128_dec), guard_(key) {
    prepare_(key.data(), &schedule_);
  }
  ~IpsecMbKey() override { wipe(std::as_writable_bytes(std::span{&schedule_, 1})); }

  void rekey(std::span<const std::byte, kKeyBytes> key) override {
    guard_.become(key);
    prepare_(key.data(), &schedule_);  // one function fills the same fields each time: nothing of the old key is left
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
    run(encrypt_, nonce, aad, from, to, tag);
  }

  bool open_into(const Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to, const std::byte* tag) override {
    check_sizes(aad, from);
    std::array<std::byte, kTagBytes> computed;
    run(decrypt_, nonce, aad, from, to, computed.data());
    if (tags_equal(computed.data(), tag)) [[likely]]
      return true;
    if (!from.empty()) std::memset(to, 0, from.size());
    return false;
  }

  void mac(const Nonce& nonce, ByteSpan aad, std::byte* tag) override {
    check_sizes(aad, {});
    if (!guard_.may_seal(nonce)) [[unlikely]]
      return leave_zeros(nullptr, 0, tag);
    run(encrypt_, nonce, aad, {}, nullptr, tag);
  }

  bool verify_mac(const Nonce& nonce, ByteSpan aad, const std::byte* tag) override {
    check_sizes(aad, {});
    std::array<std::byte, kTagBytes> computed;
    run(encrypt_, nonce, aad, {}, nullptr, computed.data());
    return tags_equal(computed.data(), tag);
  }

 private:
  void run(aes_gcm_enc_dec_t function, const Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to, std::byte* tag) {
    // The library returns silently, with no tag written, if it is given a null pointer: never give it one.
    std::byte stand_in{};
    const std::byte* const in = from.empty() ? &stand_in : from.data();
    std::byte* const out = from.empty() ? &stand_in : to;
    const std::byte* const extra = aad.empty() ? &stand_in : aad.data();
    gcm_context_data scratch;
    function(&schedule_, &scratch, raw(out), raw(in), from.size(), raw(nonce.data()), raw(extra), aad.size(), raw(tag),
             kTagBytes);
  }

  aes_gcm_pre_t prepare_;
  aes_gcm_enc_dec_t encrypt_;
  aes_gcm_enc_dec_t decrypt_;
  [[no_unique_address]] NonceGuard guard_;
  alignas(64) gcm_key_data schedule_;
};

class IpsecMbBlockKey final : public BlockKey {
 public:
  IpsecMbBlockKey(const IMB_MGR& manager, std::span<const std::byte, kKeyBytes> key) : prepare_(manager.keyexp_128) {
    rekey(key);
  }
  ~IpsecMbBlockKey() override {
    wipe(encrypting_);
    wipe(decrypting_);
  }

  void rekey(std::span<const std::byte, kKeyBytes> key) override {
    prepare_(key.data(), encrypting_.data(), decrypting_.data());
  }

  // The library chains blocks in jobs only, for which it waits until it has several; its function for a single block
  // takes four times the instructions of this loop. The schedule is the library's, and so is the word that this CPU
  // has the instructions.
  [[gnu::target("aes")]] void chain(MutableByteSpan blocks) override {
    const auto* const schedule = reinterpret_cast<const __m128i*>(encrypting_.data());
    __m128i state = _mm_setzero_si128();
    for (std::size_t at = 0; at != blocks.size(); at += kBlockBytes) {
      state = _mm_xor_si128(state, _mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks.data() + at)));
      state = _mm_xor_si128(state, schedule[0]);
      for (std::size_t round = 1; round < kRounds; ++round) state = _mm_aesenc_si128(state, schedule[round]);
      state = _mm_aesenclast_si128(state, schedule[kRounds]);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(blocks.data() + blocks.size() - kBlockBytes), state);
  }

 private:
  static constexpr std::size_t kRounds = 10;
  static constexpr std::size_t kScheduleBytes = (kRounds + 1) * kBlockBytes;
  keyexp_t prepare_;
  alignas(16) std::array<std::byte, kScheduleBytes> encrypting_;
  alignas(16) std::array<std::byte, kScheduleBytes> decrypting_;  // not needed, but always made
};

class IpsecMbAead final : public Aead {
 public:
  IpsecMbAead(Manager manager, BackendInfo info) : manager_(std::move(manager)), info_(info) {}

  std::unique_ptr<AeadKey> make_key(std::span<const std::byte, kKeyBytes> key) override {
    return std::make_unique<IpsecMbKey>(*manager_, key);
  }
  std::unique_ptr<BlockKey> make_block_key(std::span<const std::byte, kKeyBytes> key) override {
    return std::make_unique<IpsecMbBlockKey>(*manager_, key);
  }
  BackendInfo info() const override { return info_; }

 private:
  Manager manager_;
  BackendInfo info_;
};

}  // namespace

std::optional<BackendInfo> ipsec_mb_info() {
  // The CPU does not change while we run: asked once, and the answer's text lives here.
  static const auto detail = [] {
    std::array<char, 64> text{};
    const ReadyManager ready = make_manager();
    if (ready.manager) {
      std::snprintf(text.data(), text.size(), "ipsec-mb %s, %s", imb_get_version_str(),
                    architecture_name(ready.architecture, ready.manager->features));
    }
    return text;
  }();
  if (detail[0] == '\0') return std::nullopt;
  return BackendInfo{Backend::ipsec_mb, "ipsec-mb", detail.data()};
}

std::unique_ptr<Aead> create_ipsec_mb() {
  const auto info = ipsec_mb_info();
  if (!info) return nullptr;
  ReadyManager ready = make_manager();
  if (!ready.manager) return nullptr;
  return std::make_unique<IpsecMbAead>(std::move(ready.manager), *info);
}

}  // namespace weir::crypto

#endif  // WEIR_HAVE_IPSEC_MB
