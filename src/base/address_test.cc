#include "base/address.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <unordered_set>

namespace weir {
namespace {

std::string round_trip(std::string_view text) {
  const Result<Address> parsed = Address::parse(text);
  return parsed ? parsed->to_string() : parsed.error().to_string();
}

TEST(Address, PrintsWhatItParsed) {
  for (const char* text : {"127.0.0.1:4433", "0.0.0.0:0", "255.255.255.255:65535", "[::1]:4433", "[::]:0",
                           "[2001:db8::42]:1", "[fe80::1%3]:9"}) {
    EXPECT_EQ(round_trip(text), text);
  }
}

TEST(Address, KeepsIpv4AsMappedIpv6) {
  const Result<Address> plain = Address::parse("10.1.2.3:80");
  const Result<Address> mapped = Address::parse("[::ffff:10.1.2.3]:80");
  ASSERT_TRUE(plain && mapped);
  EXPECT_EQ(*plain, *mapped);
  EXPECT_EQ(*plain, Address::v4(0x0a010203, 80));
  EXPECT_TRUE(plain->is_v4());
  EXPECT_FALSE(Address::parse("[::1]:80")->is_v4());
  EXPECT_FALSE(Address{}.is_v4());
}

TEST(Address, ResolvesAName) {
  const Result<Address> local = Address::parse("localhost:4433");
  ASSERT_TRUE(local) << local.error().to_string();
  EXPECT_EQ(local->port, 4433);
  EXPECT_TRUE(local->to_string() == "127.0.0.1:4433" || local->to_string() == "[::1]:4433") << local->to_string();
}

TEST(Address, SaysWhatIsWrong) {
  const auto expect_refused = [](std::string_view text, std::string_view why) {
    const Result<Address> parsed = Address::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), Code::invalid_argument) << text;
    EXPECT_NE(parsed.error().message().find(why), std::string_view::npos) << parsed.error().to_string();
  };
  expect_refused("", "no port");
  expect_refused("127.0.0.1", "no port");
  expect_refused("[::1]", "no port");
  expect_refused("127.0.0.1:", "not a number");
  expect_refused("127.0.0.1:65536", "not a number");
  expect_refused("127.0.0.1:-1", "not a number");
  expect_refused("127.0.0.1:80x", "not a number");
  expect_refused(":80", "no host");
  expect_refused("::1:80", "brackets");
  expect_refused("[::1:80", "not closed");
  expect_refused("[127.0.0.1]:80", "not an IPv6 address");
  expect_refused("[]:80", "not an IPv6 address");
  expect_refused("[fe80::1%no-such-interface]:80", "no network interface");
  expect_refused(std::string_view{"127.0.0.1\0x:80", 14}, "zero byte");
}

TEST(Address, DiffersByPortAndScope) {
  std::set<Address> ordered;
  std::unordered_set<Address, AddressHash> hashed;
  for (const char* text : {"[fe80::1%1]:1", "[fe80::1%2]:1", "[fe80::1%1]:2", "[fe80::2%1]:1", "1.2.3.4:1"}) {
    ordered.insert(*Address::parse(text));
    hashed.insert(*Address::parse(text));
  }
  EXPECT_EQ(ordered.size(), 5u);
  EXPECT_EQ(hashed.size(), 5u);
}

TEST(AddressHash, SpreadsNeighboursOverLowBits) {
  std::set<std::size_t> buckets;
  for (std::uint32_t host = 0; host < 64; ++host) {
    for (std::uint16_t port = 0; port < 16; ++port) {
      buckets.insert(AddressHash{}(Address::v4(0x0a000000 + host, static_cast<std::uint16_t>(4000 + port))) % 4096);
    }
  }
  EXPECT_GT(buckets.size(), 800u);  // 1,024 balls in 4,096 bins fill about 906 of them
}

TEST(Error, ReadsAsASentence) {
  EXPECT_EQ((Error{Code::timeout, "the deadline passed", true}.to_string()),
            "timeout: the deadline passed (the peer may have run it)");
  EXPECT_EQ((Error{Code::refused, std::string{"it is closing"}}.to_string()), "refused: it is closing");
  EXPECT_EQ((Error{Code::closed, ""}.to_string()), "closed");
  EXPECT_EQ(name(static_cast<Code>(200)), "unknown");
}

}  // namespace
}  // namespace weir
