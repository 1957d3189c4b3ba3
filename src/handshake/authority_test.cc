#include "handshake/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "handshake/identity_testing.h"

namespace weir::handshake {
namespace {

using namespace weir::handshake::testing;
using ::testing::HasSubstr;

Certificate first_of(const std::string& pem) {
  return std::move(value_of(Certificate::list_from_pem(pem, 8, "a chain")).front());
}

unsigned key_usage(const Certificate& certificate, unsigned& critical) {
  unsigned usage = 0;
  EXPECT_EQ(gnutls_x509_crt_get_key_usage(certificate.gnutls(), &usage, &critical), 0);
  return usage;
}

TEST(Authority, ItsCertificateIsThatOfAnAuthorityOnly) {
  for (const KeyType key : {KeyType::ed25519, KeyType::p256}) {
    const Authority authority = make_authority("rack 1", key);
    const Certificate& certificate = authority.certificate();
    EXPECT_EQ(certificate.subject(), "CN=rack 1");
    EXPECT_EQ(certificate.issuer(), "CN=rack 1");
    EXPECT_TRUE(certificate.is_self_issued());
    EXPECT_TRUE(certificate.is_authority());
    unsigned critical = 0, authority_flag = 0;
    int path_length = 0;
    EXPECT_GE(gnutls_x509_crt_get_basic_constraints(certificate.gnutls(), &critical, &authority_flag, &path_length), 0);
    EXPECT_EQ(critical, 1u);
    EXPECT_EQ(authority_flag, 1u);
    EXPECT_EQ(key_usage(certificate, critical),
              static_cast<unsigned>(GNUTLS_KEY_KEY_CERT_SIGN) | static_cast<unsigned>(GNUTLS_KEY_CRL_SIGN));
    EXPECT_EQ(critical, 1u);
    EXPECT_EQ(certificate.key_type(), key == KeyType::ed25519 ? "Ed25519" : "ECDSA P-256");
  }
}

TEST(Authority, NodesHaveNamesBothPurposesAndASigningKey) {
  const Authority authority = make_authority();
  const Certificate node = first_of(value_of(authority.issue(node_request({"db7.example", "10.0.0.7"}))).chain_pem);
  EXPECT_EQ(node.subject(), "CN=db7.example");
  EXPECT_EQ(node.issuer(), "CN=test authority");
  EXPECT_FALSE(node.is_authority());
  EXPECT_EQ(node.purposes(), (std::vector<std::string>{"server", "client"}));
  unsigned critical = 0;
  EXPECT_EQ(key_usage(node, critical), static_cast<unsigned>(GNUTLS_KEY_DIGITAL_SIGNATURE));
  EXPECT_EQ(node.not_before_seconds(), kTestWallSeconds - kDaySeconds);
  EXPECT_EQ(node.not_after_seconds(), kTestWallSeconds + kDaySeconds);
  EXPECT_EQ(value_of(node.names()).all(), (std::vector<std::string>{"db7.example", "10.0.0.7"}));
}

TEST(Authority, SerialNumbersAreLongAndNeverTheSame) {
  const Authority authority = make_authority();
  std::set<std::string> serials{authority.certificate().serial()};
  for (int i = 0; i < 20; ++i) {
    const Certificate node = first_of(value_of(authority.issue(node_request({"db7.example"}))).chain_pem);
    EXPECT_EQ(node.serial().size(), 32u);
    EXPECT_LT(node.serial()[0], '8');  // positive
    EXPECT_TRUE(serials.insert(node.serial()).second);
  }
}

TEST(Authority, SurvivesItsFiles) {
  const Authority authority = make_authority();
  const Authority again = value_of(Authority::from_pem(authority.certificate_pem(), authority.key_pem()));
  const auto ours = make_credentials(authority, {"a.example"});
  std::vector<unsigned char> der = first_of(value_of(again.issue(node_request({"b.example"}))).chain_pem).to_der();
  const gnutls_datum_t datum{der.data(), static_cast<unsigned>(der.size())};
  EXPECT_TRUE(ours->verify({&datum, 1}, kTestWallSeconds, true));
  // In one file as well, in any order.
  EXPECT_TRUE(Authority::from_pem(authority.certificate_pem() + authority.key_pem(),
                                  authority.certificate_pem() + authority.key_pem()));
}

TEST(Authority, IssuesNothingThatOutlivesIt) {
  const Authority authority = make_authority();
  NodeRequest request = node_request({"db7.example"});
  request.validity = {0, kTestWallSeconds + 1000 * kDaySeconds};
  const Certificate node = first_of(value_of(authority.issue(request)).chain_pem);
  EXPECT_EQ(node.not_before_seconds(), authority.certificate().not_before_seconds());
  EXPECT_EQ(node.not_after_seconds(), authority.certificate().not_after_seconds());
  request.validity = {kTestWallSeconds + 900 * kDaySeconds, kTestWallSeconds + 1000 * kDaySeconds};
  EXPECT_FALSE(authority.issue(request));
}

TEST(Authority, RefusesNamesThatNobodyCouldProve) {
  const Authority authority = make_authority();
  for (const char* name : {"", "a b", "a..b", "db*.example", "http://x", "\xff"}) {
    const auto issued = authority.issue(node_request({name}));
    ASSERT_FALSE(issued) << name;
    EXPECT_EQ(issued.error().code(), Code::invalid_argument);
  }
  EXPECT_FALSE(authority.issue(node_request({})));
  EXPECT_FALSE(Authority::create({.name = "", .validity = {0, 1}}));
  EXPECT_FALSE(Authority::create({.name = "x\n", .validity = {0, 1}}));
  EXPECT_FALSE(Authority::create({.name = std::string(65, 'x'), .validity = {0, 1}}));
  EXPECT_FALSE(Authority::create({.name = "x", .validity = {1, 1}}));
}

TEST(Authority, ALongNameIsStillProven) {
  std::string name = "a";
  for (int i = 0; i < 12; ++i) name += ".abcdefghij";
  const auto ours = make_credentials(make_authority(), {name});
  EXPECT_TRUE(ours->names().proves(name));
  EXPECT_EQ(ours->certificate().subject().size(), 3u + 64u);
}

TEST(Authority, IsNotMadeFromPartsOfDifferentOnes) {
  const Authority one = make_authority("one");
  const Authority two = make_authority("two");
  EXPECT_FALSE(Authority::from_pem(one.certificate_pem(), two.key_pem()));
  const Issued node = value_of(one.issue(node_request({"db7.example"})));
  const auto made = Authority::from_pem(node.chain_pem, node.key_pem);
  ASSERT_FALSE(made);
  EXPECT_THAT(std::string(made.error().message()), HasSubstr("not the certificate of an authority"));
}

}  // namespace
}  // namespace weir::handshake
