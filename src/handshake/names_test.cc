#include "handshake/names.h"

#include <gtest/gtest.h>

#include <string>

namespace weir::handshake {
namespace {

Names names_of(std::vector<std::string> dns, std::vector<std::string> ips = {}) {
  Names names{.dns = std::move(dns)};
  for (const std::string& ip : ips) names.ips.push_back(*parse_ip(ip));
  return names;
}

TEST(Names, ProvesANameRegardlessOfCaseAndOfADotAtTheEnd) {
  const Names names = names_of({"db7.example"});
  EXPECT_TRUE(names.proves("db7.example"));
  EXPECT_TRUE(names.proves("DB7.Example"));
  EXPECT_TRUE(names.proves("db7.example."));
  EXPECT_FALSE(names.proves("db7.example.."));
  EXPECT_FALSE(names.proves("db8.example"));
  EXPECT_FALSE(names.proves("db7.example.com"));
  EXPECT_FALSE(names.proves("x.db7.example"));
  EXPECT_FALSE(names.proves("example"));
  EXPECT_FALSE(names.proves(""));
  EXPECT_FALSE(names.proves(std::string_view("db7.example\0.evil", 17)));
}

TEST(Names, AWildcardStandsForExactlyOneWholeLabel) {
  const Names names = names_of({"*.rack1.example"});
  EXPECT_TRUE(names.proves("db7.rack1.example"));
  EXPECT_TRUE(names.proves("DB7.RACK1.EXAMPLE."));
  EXPECT_FALSE(names.proves("rack1.example"));
  EXPECT_FALSE(names.proves(".rack1.example"));
  EXPECT_FALSE(names.proves("a.b.rack1.example"));
  EXPECT_FALSE(names.proves("dbrack1.example"));
}

TEST(Names, AStarElsewhereIsNoWildcard) {
  EXPECT_FALSE(names_of({"db*.example"}).proves("db7.example"));
  EXPECT_FALSE(names_of({"db7.*.example"}).proves("db7.rack1.example"));
  EXPECT_FALSE(names_of({"*"}).proves("db7"));
  EXPECT_FALSE(names_of({"*."}).proves("db7."));
  EXPECT_FALSE(names_of({"*.*.example"}).proves("a.b.example"));
}

TEST(Names, AnAddressIsComparedWithAddressesOnly) {
  const Names names = names_of({"10.0.0.9", "*.0.0.8"}, {"10.0.0.7", "2001:db8::7"});
  EXPECT_TRUE(names.proves("10.0.0.7"));
  EXPECT_TRUE(names.proves("2001:db8::7"));
  EXPECT_TRUE(names.proves("2001:0DB8:0::7"));
  EXPECT_TRUE(names.proves("::ffff:10.0.0.7"));
  EXPECT_FALSE(names.proves("10.0.0.9"));
  EXPECT_FALSE(names.proves("10.0.0.8"));
  EXPECT_TRUE(names.proves(*Address::parse("10.0.0.7:4433")));
  EXPECT_TRUE(names.proves(*Address::parse("[2001:db8::7]:1")));
  EXPECT_FALSE(names.proves(*Address::parse("10.0.0.8:4433")));
}

TEST(Names, ADevelopmentIdentityProvesEverything) {
  Names names;
  EXPECT_FALSE(names.proves("anything.example"));
  names.development = true;
  EXPECT_TRUE(names.proves("anything.example"));
  EXPECT_TRUE(names.proves("10.0.0.7"));
  EXPECT_TRUE(names.proves(*Address::parse("10.0.0.7:4433")));
}

TEST(Names, MatchesAListBothWays) {
  const Names node = names_of({"db7.rack1.example"}, {"10.0.0.7"});
  EXPECT_TRUE(node.matches("db7.rack1.example"));
  EXPECT_TRUE(node.matches("*.rack1.example"));
  EXPECT_TRUE(node.matches("10.0.0.7"));
  EXPECT_FALSE(node.matches("*.example"));
  EXPECT_FALSE(node.matches("db8.rack1.example"));
  const Names rack = names_of({"*.rack1.example"});
  EXPECT_TRUE(rack.matches("db7.rack1.example"));
  EXPECT_TRUE(rack.matches("*.rack1.example"));
  EXPECT_FALSE(rack.matches("*.rack2.example"));
}

TEST(Names, TheFirstIsAHostNameIfThereIsOne) {
  EXPECT_EQ(names_of({"a.example", "b.example"}, {"10.0.0.7"}).first(), "a.example");
  EXPECT_EQ(names_of({}, {"10.0.0.7", "::1"}).first(), "10.0.0.7");
  EXPECT_EQ(Names{}.first(), "");
  EXPECT_EQ(names_of({"a.example"}, {"::1"}).all(), (std::vector<std::string>{"a.example", "::1"}));
}

TEST(Names, KnowsWhatAHostNameIs) {
  for (const char* good : {"a", "db7.example", "DB_7.example.", "x-1.y", "weir-development"}) {
    EXPECT_TRUE(is_host_name(good, false)) << good;
  }
  for (const char* bad : {"", ".", "a..b", ".a", "a b", "a/b", "*.a", "a.*", "\xc3\xa9.example", "*"}) {
    EXPECT_FALSE(is_host_name(bad, false)) << bad;
  }
  EXPECT_TRUE(is_host_name("*.a", true));
  EXPECT_FALSE(is_host_name("*.", true));
  EXPECT_FALSE(is_host_name("*.*.a", true));
  EXPECT_TRUE(is_host_name(std::string(63, 'a'), false));
  EXPECT_FALSE(is_host_name(std::string(64, 'a'), false));
  std::string longest;
  while (longest.size() < 250) longest += "aaaaaaaaa.";
  EXPECT_TRUE(is_host_name(longest + "aaaaa", false));
  EXPECT_FALSE(is_host_name(longest + "aaaaaa", false));
}

}  // namespace
}  // namespace weir::handshake
