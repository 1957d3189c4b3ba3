#include "handshake/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "handshake/identity_testing.h"

namespace weir::handshake {
namespace {

using namespace weir::handshake::testing;
using ::testing::HasSubstr;

// A chain as TLS would hand it over.
class Shown {
 public:
  explicit Shown(std::string_view pem) {
    for (const Certificate& certificate : value_of(Certificate::list_from_pem(pem, 1000, "a chain"))) {
      ders_.push_back(certificate.to_der());
    }
  }
  void add(std::vector<unsigned char> der) { ders_.push_back(std::move(der)); }
  std::vector<unsigned char>& operator[](std::size_t i) { return ders_[i]; }
  std::vector<gnutls_datum_t> datums() {
    std::vector<gnutls_datum_t> datums;
    for (auto& der : ders_) datums.push_back({der.data(), static_cast<unsigned>(der.size())});
    return datums;
  }

 private:
  std::vector<std::vector<unsigned char>> ders_;
};

class CredentialsTest : public ::testing::Test {
 protected:
  Result<Names> judge(Shown shown, std::int64_t wall_seconds = kTestWallSeconds, bool peer_is_server = true) {
    return ours_->verify(shown.datums(), wall_seconds, peer_is_server);
  }
  std::string sentence(Shown shown, std::int64_t wall_seconds = kTestWallSeconds, bool peer_is_server = true) {
    const Result<Names> result = judge(std::move(shown), wall_seconds, peer_is_server);
    if (result) return "accepted";
    EXPECT_EQ(result.error().code(), Code::unauthenticated);
    return std::string(result.error().message());
  }
  Shown issue(const NodeRequest& request) { return Shown(value_of(authority_.issue(request)).chain_pem); }

  Authority authority_ = make_authority();
  std::shared_ptr<const Credentials> ours_ = make_credentials(authority_, {"us.example"});
};

TEST_F(CredentialsTest, AcceptsAPeerOfTheSameRootAndTellsItsNames) {
  for (const KeyType key : {KeyType::ed25519, KeyType::p256, KeyType::rsa}) {
    const Result<Names> names = judge(issue(node_request({"DB7.example", "*.rack1.example", "10.0.0.7", "::1"}, key)));
    ASSERT_TRUE(names) << names.error().to_string();
    EXPECT_EQ(names->dns, (std::vector<std::string>{"db7.example", "*.rack1.example"}));
    EXPECT_TRUE(names->proves("10.0.0.7"));
    EXPECT_TRUE(names->proves("::1"));
    EXPECT_FALSE(names->development);
    EXPECT_EQ(names->valid_until_seconds, kTestWallSeconds + kDaySeconds);
  }
}

TEST_F(CredentialsTest, KnowsItsOwnNames) {
  EXPECT_EQ(ours_->names().first(), "us.example");
  EXPECT_EQ(ours_->certificate().key_type(), "Ed25519");
  EXPECT_FALSE(ours_->is_development());
  EXPECT_NE(ours_->gnutls(), nullptr);
}

TEST_F(CredentialsTest, RefusesAPeerWithoutACertificate) {
  const Result<Names> names = ours_->verify({}, kTestWallSeconds, true);
  ASSERT_FALSE(names);
  EXPECT_EQ(names.error().code(), Code::unauthenticated);
  EXPECT_THAT(std::string(names.error().message()), HasSubstr("no certificate"));
}

TEST_F(CredentialsTest, RefusesAnotherRootAndNamesIt) {
  const Authority other = make_authority("somebody else");
  const Shown shown(value_of(other.issue(node_request({"db7.example"}))).chain_pem);
  EXPECT_THAT(sentence(shown), ::testing::AllOf(HasSubstr("somebody else"), HasSubstr("none of our roots")));
  Shown with_root = shown;
  with_root.add(other.certificate().to_der());
  EXPECT_THAT(sentence(with_root), HasSubstr("none of our roots"));
}

TEST_F(CredentialsTest, RefusesAnotherRootOfTheSameName) {
  const Authority twin = make_authority();
  EXPECT_NE(sentence(Shown(value_of(twin.issue(node_request({"db7.example"}))).chain_pem)), "accepted");
}

TEST_F(CredentialsTest, RefusesACertificateThatVouchesForItself) {
  const Authority alone = make_authority("alone");
  EXPECT_THAT(sentence(Shown(alone.certificate_pem())), HasSubstr("none of our roots"));
}

TEST_F(CredentialsTest, RefusesOutsideOfTheValidityAndTellsWhen) {
  const Shown shown = issue(node_request({"db7.example"}));
  EXPECT_EQ(sentence(shown, kTestWallSeconds - kDaySeconds), "accepted");
  EXPECT_EQ(sentence(shown, kTestWallSeconds + kDaySeconds), "accepted");
  EXPECT_THAT(sentence(shown, kTestWallSeconds + kDaySeconds + 1), HasSubstr("expired at 2027-01-16 08:00:00 UTC"));
  EXPECT_THAT(sentence(shown, kTestWallSeconds - kDaySeconds - 1),
              HasSubstr("not valid before 2027-01-14 08:00:00 UTC"));
}

TEST_F(CredentialsTest, RefusesWhatAnExpiredRootVouchesFor) {
  NodeRequest request = node_request({"db7.example"});
  request.validity.until_seconds = kTestWallSeconds + 100 * kDaySeconds;
  request.cut_validity = false;
  const Shown shown = issue(request);
  EXPECT_EQ(sentence(shown), "accepted");
  EXPECT_THAT(sentence(shown, kTestWallSeconds + 11 * kDaySeconds),
              ::testing::AllOf(HasSubstr("our root \"CN=test authority\""), HasSubstr("expired")));
}

TEST_F(CredentialsTest, AnExpiredRootDoesNotHurtTheOthers) {
  const Authority old = make_authority("old", KeyType::ed25519,
                                       {kTestWallSeconds - 20 * kDaySeconds, kTestWallSeconds - 10 * kDaySeconds});
  const auto both =
      make_credentials(authority_, node_request({"us.example"}), old.certificate_pem() + authority_.certificate_pem());
  Shown shown = issue(node_request({"db7.example"}));
  EXPECT_TRUE(both->verify(shown.datums(), kTestWallSeconds, true));
}

TEST_F(CredentialsTest, RefusesAChangedCertificate) {
  Shown shown = issue(node_request({"db7.example"}));
  auto& der = shown[0];
  const std::string name = "db7.example";
  auto at = std::search(der.begin(), der.end(), name.begin(), name.end());
  ASSERT_NE(at, der.end());
  at = std::search(at + 1, der.end(), name.begin(), name.end());  // the common name comes first
  ASSERT_NE(at, der.end());
  at[2] = '8';
  EXPECT_THAT(sentence(shown), HasSubstr("bad signature"));
}

TEST_F(CredentialsTest, RefusesEveryChangeOfAnyByte) {
  const Shown good = issue(node_request({"db7.example"}));
  const std::size_t size = Shown(good)[0].size();
  for (std::size_t i = 0; i < size; ++i) {
    Shown shown = good;
    shown[0][i] ^= 1;
    EXPECT_FALSE(judge(shown)) << "byte " << i;
  }
}

TEST_F(CredentialsTest, RefusesWeakKeysAndSignatures) {
  const Authority rsa = make_authority("rsa", KeyType::rsa);
  ours_ = make_credentials(rsa, {"us.example"});
  NodeRequest weak_key = node_request({"db7.example"}, KeyType::rsa);
  weak_key.rsa_bits = 1024;
  EXPECT_THAT(sentence(Shown(value_of(rsa.issue(weak_key)).chain_pem)), HasSubstr("an RSA key of 1024 bits"));
  NodeRequest weak_hash = node_request({"db7.example"});
  weak_hash.sha1 = true;
  EXPECT_THAT(sentence(Shown(value_of(rsa.issue(weak_hash)).chain_pem)),
              ::testing::AllOf(HasSubstr("a weak signature"), HasSubstr("SHA1")));
}

TEST_F(CredentialsTest, RefusesTheWrongPurpose) {
  NodeRequest client = node_request({"db7.example"});
  client.for_servers = false;
  EXPECT_THAT(sentence(issue(client), kTestWallSeconds, true), HasSubstr("not for servers"));
  EXPECT_EQ(sentence(issue(client), kTestWallSeconds, false), "accepted");
  NodeRequest server = node_request({"db7.example"});
  server.for_clients = false;
  EXPECT_THAT(sentence(issue(server), kTestWallSeconds, false), HasSubstr("not for clients"));
  EXPECT_EQ(sentence(issue(server), kTestWallSeconds, true), "accepted");
}

TEST_F(CredentialsTest, FollowsIntermediateAuthorities) {
  NodeRequest request = node_request({"rack authority"});
  request.authority = true;
  const Issued middle = value_of(authority_.issue(request));
  const Authority rack = value_of(Authority::from_pem(middle.chain_pem, middle.key_pem));
  const Issued node = value_of(rack.issue(node_request({"db7.example"})));
  Shown shown(node.chain_pem);
  ASSERT_EQ(shown.datums().size(), 2u);
  EXPECT_EQ(sentence(shown), "accepted");
  Shown with_root = shown;
  with_root.add(authority_.certificate().to_der());
  EXPECT_EQ(sentence(with_root), "accepted");
  // Without the one in the middle, its name is what we lack.
  Shown alone(node.chain_pem.substr(0, node.chain_pem.find("-----BEGIN", 1)));
  ASSERT_EQ(alone.datums().size(), 1u);
  EXPECT_THAT(sentence(alone), HasSubstr("rack authority"));
}

TEST_F(CredentialsTest, RefusesAnExpiredIntermediateAuthority) {
  NodeRequest request = node_request({"rack authority"});
  request.authority = true;
  const Issued middle = value_of(authority_.issue(request));
  const Authority rack = value_of(Authority::from_pem(middle.chain_pem, middle.key_pem));
  NodeRequest longer = node_request({"db7.example"});
  longer.validity.until_seconds += 5 * kDaySeconds;
  longer.cut_validity = false;
  const Shown shown(value_of(rack.issue(longer)).chain_pem);
  EXPECT_EQ(sentence(shown), "accepted");
  EXPECT_THAT(sentence(shown, kTestWallSeconds + 2 * kDaySeconds), HasSubstr("an intermediate certificate expired at"));
}

// How an authority hands over to its next key: the old key vouches for the new one under the same name.
TEST_F(CredentialsTest, RefusesAnExpiredIntermediateAuthorityThatBearsTheNameOfItsIssuer) {
  NodeRequest request = node_request({"test authority"});
  request.authority = true;
  const Issued handover = value_of(authority_.issue(request));
  const Authority next = value_of(Authority::from_pem(handover.chain_pem, handover.key_pem));
  ASSERT_EQ(next.certificate().subject(), next.certificate().issuer());
  NodeRequest longer = node_request({"db7.example"});
  longer.validity.until_seconds += 5 * kDaySeconds;
  longer.cut_validity = false;
  Shown shown(value_of(next.issue(longer)).chain_pem);
  shown.add(authority_.certificate().to_der());
  ASSERT_EQ(shown.datums().size(), 3u);
  EXPECT_EQ(sentence(shown), "accepted");
  EXPECT_THAT(sentence(shown, kTestWallSeconds + 2 * kDaySeconds), HasSubstr("an intermediate certificate expired at"));
}

// Whether it is a link of the chain is the library's secret, so all of them count.
TEST_F(CredentialsTest, JudgesTheTimeOfEveryCertificateThatIsNoRootOfOurs) {
  const Validity past{kTestWallSeconds - 10 * kDaySeconds, kTestWallSeconds - kDaySeconds};
  for (const char* name : {"another authority", "test authority"}) {
    Shown shown = issue(node_request({"db7.example"}));
    shown.add(make_authority(name, KeyType::ed25519, past).certificate().to_der());
    EXPECT_THAT(sentence(shown), HasSubstr("an intermediate certificate expired at")) << name;
  }
  Shown shown = issue(node_request({"db7.example"}));
  shown.add(make_authority("another authority").certificate().to_der());
  EXPECT_EQ(sentence(shown), "accepted");
}

// A root that was issued anew with its old key: peers still send the old edition along.
TEST_F(CredentialsTest, AnOldEditionOfAValidRootDoesNoHarm) {
  gnutls_x509_privkey_t key = nullptr;
  gnutls_x509_privkey_init(&key);
  const std::string key_pem = authority_.key_pem();
  const gnutls_datum_t pem{reinterpret_cast<unsigned char*>(const_cast<char*>(key_pem.data())),
                           static_cast<unsigned>(key_pem.size())};
  ASSERT_EQ(gnutls_x509_privkey_import2(key, &pem, GNUTLS_X509_FMT_PEM, nullptr, GNUTLS_PKCS_PLAIN), 0);
  gnutls_x509_crt_t made = nullptr;
  gnutls_x509_crt_init(&made);
  gnutls_x509_crt_set_version(made, 3);
  gnutls_x509_crt_set_serial(made, "\x01\x02\x03", 3);
  gnutls_x509_crt_set_dn_by_oid(made, GNUTLS_OID_X520_COMMON_NAME, 0, "test authority", 14);
  gnutls_x509_crt_set_activation_time(made, kTestWallSeconds - 20 * kDaySeconds);
  gnutls_x509_crt_set_expiration_time(made, kTestWallSeconds - kDaySeconds);
  gnutls_x509_crt_set_key(made, key);
  gnutls_x509_crt_set_basic_constraints(made, 1, -1);
  ASSERT_EQ(gnutls_x509_crt_sign2(made, made, key, GNUTLS_DIG_SHA512, 0), 0);
  gnutls_x509_privkey_deinit(key);
  Shown shown = issue(node_request({"db7.example"}));
  shown.add(Certificate(made).to_der());
  EXPECT_EQ(sentence(shown), "accepted");
}

// What our authority refuses to make: signed with the key of whomever, for a common name that is not among the others.
// The new certificate has the signer's key.
std::string signed_by(const Issued& signer, std::string_view common_name, std::string_view name) {
  const auto chain = value_of(Certificate::list_from_pem(signer.chain_pem, 1, "a signer"));
  gnutls_x509_privkey_t key = nullptr;
  gnutls_x509_crt_t made = nullptr;
  gnutls_x509_privkey_init(&key);
  gnutls_x509_crt_init(&made);
  const gnutls_datum_t pem{reinterpret_cast<unsigned char*>(const_cast<char*>(signer.key_pem.data())),
                           static_cast<unsigned>(signer.key_pem.size())};
  EXPECT_EQ(gnutls_x509_privkey_import2(key, &pem, GNUTLS_X509_FMT_PEM, nullptr, GNUTLS_PKCS_PLAIN), 0);
  gnutls_x509_crt_set_version(made, 3);
  gnutls_x509_crt_set_serial(made, "\x01", 1);
  gnutls_x509_crt_set_dn_by_oid(made, GNUTLS_OID_X520_COMMON_NAME, 0, common_name.data(),
                                static_cast<unsigned>(common_name.size()));
  gnutls_x509_crt_set_subject_alt_name(made, GNUTLS_SAN_DNSNAME, name.data(), static_cast<unsigned>(name.size()),
                                       GNUTLS_FSAN_APPEND);
  for (const char* purpose : {GNUTLS_KP_TLS_WWW_SERVER, GNUTLS_KP_TLS_WWW_CLIENT}) {
    gnutls_x509_crt_set_key_purpose_oid(made, purpose, 0);
  }
  gnutls_x509_crt_set_activation_time(made, kTestWallSeconds - 1);
  gnutls_x509_crt_set_expiration_time(made, kTestWallSeconds + 1);
  gnutls_x509_crt_set_key(made, key);
  EXPECT_EQ(gnutls_x509_crt_sign2(made, chain.front().gnutls(), key, GNUTLS_DIG_SHA512, 0), 0);
  gnutls_x509_privkey_deinit(key);
  return Certificate(made).to_pem();
}

TEST_F(CredentialsTest, ANodeCannotVouchForOthers) {
  const Issued node = value_of(authority_.issue(node_request({"db7.example"})));
  EXPECT_THAT(sentence(Shown(signed_by(node, "admin", "admin.example") + node.chain_pem)),
              HasSubstr("not an authority"));
}

TEST_F(CredentialsTest, TheCommonNameProvesNothing) {
  const Issued us{.chain_pem = authority_.certificate_pem(), .key_pem = authority_.key_pem()};
  const Result<Names> names = judge(Shown(signed_by(us, "db7.example", "other.example")));
  ASSERT_TRUE(names) << names.error().to_string();
  EXPECT_EQ(names->dns, std::vector<std::string>{"other.example"});
  EXPECT_TRUE(names->proves("other.example"));
  EXPECT_FALSE(names->proves("db7.example"));
  EXPECT_FALSE(names->matches("db7.example"));  // as lists of who may call would have it
  EXPECT_EQ(names->first(), "other.example");
}

TEST_F(CredentialsTest, BoundsWhatAPeerMayShow) {
  Shown many = issue(node_request({"db7.example"}));
  while (many.datums().size() <= kMaxChain) many.add(authority_.certificate().to_der());
  EXPECT_THAT(sentence(many), HasSubstr("more than 8"));
  Shown large = issue(node_request({"db7.example"}));
  large[0].resize(kMaxCertificateBytes + 1);
  EXPECT_THAT(sentence(large), HasSubstr("16 KiB"));
  Shown empty = issue(node_request({"db7.example"}));
  empty[0].clear();
  EXPECT_NE(sentence(empty), "accepted");
  Shown nonsense = issue(node_request({"db7.example"}));
  nonsense[0].assign(100, 0x30);
  EXPECT_THAT(sentence(nonsense), HasSubstr("what should be a certificate is none"));
}

TEST_F(CredentialsTest, AcceptsSixtyFourNamesAndNoMore) {
  std::vector<std::string> names;
  for (int i = 0; i < 64; ++i) names.push_back("node" + std::to_string(i) + ".example");
  const Result<Names> result = judge(issue(node_request(names)));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->dns, names);
  names.push_back("one.too.many");
  EXPECT_FALSE(authority_.issue(node_request(names)));
}

TEST_F(CredentialsTest, DevelopmentPeersProveAnyNameOnlyToDevelopmentCredentials) {
  Shown shown = issue(node_request({"weir-development"}));
  const auto development = make_credentials(authority_, node_request({"weir-development"}), "", true);
  const Result<Names> names = development->verify(shown.datums(), kTestWallSeconds, true);
  ASSERT_TRUE(names);
  EXPECT_TRUE(names->development);
  EXPECT_TRUE(names->proves("anything.example"));
  EXPECT_FALSE(judge(shown)->proves("anything.example"));
}

TEST_F(CredentialsTest, ManyThreadsMayVerifyAtOnce) {
  std::vector<std::thread> threads;
  const Shown good = issue(node_request({"db7.example"}));
  const Shown bad(value_of(make_authority("other").issue(node_request({"db7.example"}))).chain_pem);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) EXPECT_EQ(judge(i % 2 == 0 ? good : bad).has_value(), i % 2 == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CredentialsTest, LoadingTellsWhatIsWrong) {
  const Issued node = value_of(authority_.issue(node_request({"db7.example"})));
  const Issued other = value_of(authority_.issue(node_request({"db8.example"})));
  const std::string roots = authority_.certificate_pem();
  auto trouble = [](std::string_view chain, std::string_view key, std::string_view root_pem) -> std::string {
    auto made = Credentials::from_pem(chain, key, root_pem);
    if (made) return "loaded";
    EXPECT_EQ(made.error().code(), Code::invalid_argument);
    return std::string(made.error().message());
  };
  EXPECT_EQ(trouble(node.chain_pem, node.key_pem, roots), "loaded");
  EXPECT_THAT(trouble("", node.key_pem, roots), HasSubstr("the certificate: it is empty"));
  EXPECT_THAT(trouble("nonsense", node.key_pem, roots), HasSubstr("no PEM certificate"));
  EXPECT_THAT(trouble(node.key_pem, node.key_pem, roots), HasSubstr("the certificate: it holds no"));
  EXPECT_THAT(trouble(node.chain_pem.substr(0, 200), node.key_pem, roots), HasSubstr("the certificate: it holds no"));
  EXPECT_THAT(trouble(node.chain_pem, "", roots), HasSubstr("the private key: it is empty"));
  EXPECT_THAT(trouble(node.chain_pem, node.chain_pem, roots), HasSubstr("the private key: it is not"));
  EXPECT_THAT(trouble(node.chain_pem, other.key_pem, roots), HasSubstr("does not belong to the certificate"));
  EXPECT_THAT(trouble(node.chain_pem, node.key_pem, ""), HasSubstr("the roots: it is empty"));
  EXPECT_THAT(trouble(node.chain_pem, node.key_pem, "-----BEGIN nothing"), HasSubstr("the roots"));
  EXPECT_THAT(trouble(std::string(kMaxPemBytes + 1, '\n'), node.key_pem, roots), HasSubstr("larger than 1 MiB"));
  std::string many;
  for (std::size_t i = 0; i <= kMaxChain; ++i) many += node.chain_pem;
  EXPECT_THAT(trouble(many, node.key_pem, roots), HasSubstr("more than 8"));
  NodeRequest weak = node_request({"db7.example"}, KeyType::rsa);
  weak.rsa_bits = 1024;
  const Issued issued = value_of(authority_.issue(weak));
  EXPECT_THAT(trouble(issued.chain_pem, issued.key_pem, roots), HasSubstr("1024 bits"));
}

TEST(Certificate, PrintsNothingThatCouldHarmATerminal) {
  EXPECT_EQ(printable("a\x1b[31m\n\xff"), "a?[31m??");
  EXPECT_EQ(printable(std::string(200, 'x'), 10), "xxxxxxxxxx...");
  EXPECT_EQ(utc_text(0), "1970-01-01 00:00:00 UTC");
}

}  // namespace
}  // namespace weir::handshake
