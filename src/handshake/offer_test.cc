#include "handshake/offer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/random.h"

namespace weir::handshake {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kUdp = 1, kFabric = 2;

std::array<std::uint8_t, 16> ip_of(const char* text) { return Address::parse(text).value().ip; }

Offer some_offer() {
  Offer offer;
  offer.min_version = 1;
  offer.max_version = 2;
  offer.incarnation.fill(std::byte{0xa5});
  offer.name = "db7.example";
  offer.workers = {{.worker = 0, .nic = 0, .port = 5001},
                   {.worker = 1, .nic = 1, .port = 5002, .ip = ip_of("10.0.0.8:0")}};
  offer.transports = kUdp | kFabric;
  offer.mtu = 8'972;
  offer.reset_key.fill(std::byte{0x5a});
  return offer;
}

using Bytes = std::vector<std::byte>;

struct RawField {
  std::uint16_t type;
  Bytes value;
};

std::vector<RawField> split(const Bytes& bytes) {
  std::vector<RawField> fields;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = load<std::uint16_t>(bytes.data() + at + 2);
    const auto value = bytes.begin() + static_cast<std::ptrdiff_t>(at + 4);
    fields.push_back({load<std::uint16_t>(bytes.data() + at), Bytes(value, value + static_cast<std::ptrdiff_t>(size))});
    at += 4 + size;
  }
  return fields;
}

Bytes join(const std::vector<RawField>& fields) {
  Bytes bytes;
  for (const RawField& field : fields) {
    std::byte header[4];
    store(header, field.type);
    store(header + 2, static_cast<std::uint16_t>(field.value.size()));
    bytes.insert(bytes.end(), header, header + 4);
    bytes.insert(bytes.end(), field.value.begin(), field.value.end());
  }
  return bytes;
}

std::vector<RawField> some_fields() { return split(encode(some_offer()).value()); }

std::string refusal(const Bytes& bytes) {
  const auto offer = decode_offer(bytes);
  if (offer) return "accepted";
  EXPECT_EQ(offer.error().code(), Code::refused);
  return std::string{offer.error().message()};
}

TEST(Offer, SaysWhatItWasMadeOf) {
  EXPECT_EQ(decode_offer(encode(some_offer()).value()).value(), some_offer());
  Offer small = some_offer();
  small.name.clear();
  small.workers.resize(1);
  EXPECT_EQ(decode_offer(encode(small).value()).value(), small);
}

TEST(Offer, TheLargestOneFits) {
  Offer offer = some_offer();
  offer.name = std::string(Offer::kMaxName, 'n');
  offer.workers.clear();
  for (std::uint16_t i = 0; i < Offer::kMaxWorkers; ++i) {
    offer.workers.push_back({.worker = i, .nic = i, .port = 1, .ip = ip_of("10.0.0.8:0")});
  }
  const auto bytes = encode(offer).value();
  EXPECT_LE(bytes.size(), Offer::kMaxBytes / 2) << "room for later releases";
  EXPECT_EQ(decode_offer(bytes).value(), offer);
}

TEST(Offer, SkipsFieldsOfLaterReleases) {
  auto fields = some_fields();
  fields.insert(fields.begin(), {77, Bytes(300)});
  fields.insert(fields.begin() + 4, {9, {}});
  fields.push_back({0xffff, Bytes(3)});
  fields.push_back({0xffff, Bytes(4)});
  EXPECT_EQ(decode_offer(join(fields)).value(), some_offer());
}

TEST(Offer, SkipsWhatEarlierReleasesSaid) {
  auto fields = some_fields();
  fields.push_back({7, Bytes(8)});  // limits
  fields.push_back({9, Bytes(8)});  // a hash of methods
  EXPECT_EQ(decode_offer(join(fields)).value(), some_offer());
}

TEST(Offer, TakesItsFieldsInAnyOrder) {
  Random random{1};
  for (int i = 0; i < 50; ++i) {
    auto fields = some_fields();
    for (std::size_t k = fields.size(); k > 1; --k) std::swap(fields[k - 1], fields[random.below(k)]);
    EXPECT_EQ(decode_offer(join(fields)).value(), some_offer());
  }
}

TEST(Offer, RefusesEveryMissingField) {
  const char* names[] = {"versions", "incarnation", "name", "workers", "transports", "mtu", "reset key"};
  for (std::size_t i = 0; i < std::size(names); ++i) {
    auto fields = some_fields();
    fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(refusal(join(fields)), "the peer's offer does not say its " + std::string{names[i]});
  }
  EXPECT_THAT(refusal({}), HasSubstr("does not say its versions"));
}

TEST(Offer, RefusesEveryRepeatedField) {
  const auto fields = some_fields();
  ASSERT_EQ(fields.size(), 7u);
  for (const RawField& field : fields) {
    auto repeated = fields;
    repeated.push_back(field);
    EXPECT_THAT(refusal(join(repeated)), HasSubstr("twice")) << field.type;
  }
}

TEST(Offer, RefusesEveryTruncation) {
  const Bytes bytes = join(some_fields());
  ASSERT_TRUE(decode_offer(bytes).has_value());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size))), "accepted") << size;
  }
}

TEST(Offer, RefusesFieldsOfAnotherSize) {
  const auto fields = some_fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].type == 3) continue;  // a name has any size up to its limit
    for (const std::size_t size : {std::size_t{0}, fields[i].value.size() - 1, fields[i].value.size() + 1}) {
      auto changed = fields;
      changed[i].value.resize(size);
      EXPECT_NE(refusal(join(changed)), "accepted") << fields[i].type << " of " << size << " bytes";
    }
  }
}

TEST(Offer, RefusesMoreThan4096Bytes) {
  auto fields = some_fields();
  const std::size_t used = join(fields).size();
  fields.push_back({99, Bytes(Offer::kMaxBytes - used - 4)});
  ASSERT_EQ(join(fields).size(), Offer::kMaxBytes);
  EXPECT_TRUE(decode_offer(join(fields)).has_value());
  fields.back().value.push_back({});
  EXPECT_THAT(refusal(join(fields)), HasSubstr("longer than 4096"));
}

struct Fault {
  std::function<void(Offer&)> make;
  const char* sentence;
};

const Fault kFaults[] = {
    {[](Offer& o) { o.min_version = 0; }, "impossible range of versions (0-2)"},
    {[](Offer& o) { o.min_version = 3; }, "impossible range of versions (3-2)"},
    {[](Offer& o) { o.name = std::string(65, 'x'); }, "more than 64 bytes"},
    {[](Offer& o) { o.name = "a\nb"; }, "control characters"},
    {[](Offer& o) { o.name = std::string("a\0b", 3); }, "control characters"},
    {[](Offer& o) { o.name = "\x7f"; }, "control characters"},
    {[](Offer& o) { o.workers.clear(); }, "names no worker"},
    {[](Offer& o) { o.workers[1].worker = 0; }, "names worker 0 twice"},
    {[](Offer& o) {
       o.workers.clear();
       for (std::uint16_t i = 0; i <= Offer::kMaxWorkers; ++i) o.workers.push_back({.worker = i, .port = 1});
     },
     "more than 64 workers"},
    {[](Offer& o) { o.transports = 0; }, "has no transport"},
    {[](Offer& o) { o.mtu = 1'199; }, "mtu of 1199"},
    {[](Offer& o) { o.mtu = 65'536; }, "mtu of 65536"},
};

TEST(Offer, WeDoNotSayWhatWeWouldRefuse) {
  for (const Fault& fault : kFaults) {
    Offer offer = some_offer();
    fault.make(offer);
    const auto bytes = encode(offer);
    ASSERT_FALSE(bytes.has_value()) << fault.sentence;
    EXPECT_EQ(bytes.error().code(), Code::invalid_argument);
    EXPECT_THAT(std::string{bytes.error().message()}, HasSubstr(fault.sentence));
  }
}

// The same faults as a peer's bytes, made by hand since encode() does not make them.
TEST(Offer, RefusesValuesThatMakeNoSense) {
  const auto with = [](std::uint16_t type, std::initializer_list<int> bytes) {
    auto fields = some_fields();
    Bytes value;
    for (const int byte : bytes) value.push_back(static_cast<std::byte>(byte));
    fields[type - 1u].value = value;
    return refusal(join(fields));
  };
  EXPECT_THAT(with(1, {0, 2}), HasSubstr("impossible range of versions (0-2)"));
  EXPECT_THAT(with(1, {3, 2}), HasSubstr("impossible range of versions (3-2)"));
  EXPECT_EQ(with(1, {1, 255}), "accepted");
  EXPECT_THAT(with(3, {'a', 10}), HasSubstr("control characters"));
  EXPECT_THAT(with(3, {0}), HasSubstr("control characters"));
  EXPECT_EQ(with(3, {}), "accepted");
  EXPECT_EQ(with(3, {0xc3, 0xa4}), "accepted");
  EXPECT_THAT(with(4, {}), HasSubstr("names no worker"));
  EXPECT_THAT(with(4, {1, 0, 0, 0, 9, 9}), HasSubstr("middle of a worker"));
  EXPECT_THAT(with(4, {1, 0, 0, 0, 9, 9, 1, 8, 8}), HasSubstr("middle of a worker"));
  EXPECT_THAT(with(4, {1, 0, 0, 0, 9, 9, 2}), HasSubstr("unknown flags"));
  EXPECT_THAT(with(4, {1, 0, 0, 0, 9, 9, 0, 1, 0, 0, 0, 8, 8, 0}), HasSubstr("names worker 1 twice"));
  EXPECT_THAT(with(5, {0, 0, 0, 0}), HasSubstr("has no transport"));
  EXPECT_EQ(with(5, {0, 0, 0, 0x80}), "accepted") << "a transport to come";
  EXPECT_THAT(with(6, {0xaf, 4, 0, 0}), HasSubstr("mtu of 1199"));
  EXPECT_THAT(with(6, {0, 0, 1, 0}), HasSubstr("mtu of 65536"));

  auto fields = some_fields();
  fields[2].value.assign(65, std::byte{'x'});
  EXPECT_THAT(refusal(join(fields)), HasSubstr("name field of 65 bytes"));
  fields = some_fields();
  fields[3].value.assign(65 * 7, std::byte{0});
  for (std::size_t i = 0; i < 65; ++i) fields[3].value[7 * i] = static_cast<std::byte>(i);
  EXPECT_THAT(refusal(join(fields)), HasSubstr("more than 64 workers"));
}

TEST(Offer, ChoosesTheHighestCommonVersion) {
  const auto choice = [](int low, int high, int their_low, int their_high) {
    Offer ours = some_offer(), theirs = some_offer();
    ours.min_version = static_cast<std::uint8_t>(low);
    ours.max_version = static_cast<std::uint8_t>(high);
    theirs.min_version = static_cast<std::uint8_t>(their_low);
    theirs.max_version = static_cast<std::uint8_t>(their_high);
    const auto agreement = agree(ours, theirs);
    return agreement ? std::to_string(agreement->version) : std::string{agreement.error().message()};
  };
  EXPECT_EQ(choice(1, 1, 1, 1), "1");
  EXPECT_EQ(choice(1, 2, 2, 3), "2") << "two releases side by side";
  EXPECT_EQ(choice(2, 3, 1, 2), "2");
  EXPECT_EQ(choice(1, 9, 3, 5), "5");
  EXPECT_EQ(choice(1, 2, 3, 4), "no common protocol version (ours 1-2, theirs 3-4)");
  EXPECT_EQ(choice(3, 4, 1, 2), "no common protocol version (ours 3-4, theirs 1-2)");
  // Exhaustively: whatever is chosen is in both ranges, and nothing above it is.
  for (int a = 1; a <= 4; ++a) {
    for (int b = a; b <= 4; ++b) {
      for (int c = 1; c <= 4; ++c) {
        for (int d = c; d <= 4; ++d) {
          std::string best;
          for (int v = 1; v <= 4; ++v) best = v >= a && v <= b && v >= c && v <= d ? std::to_string(v) : best;
          const std::string got = choice(a, b, c, d);
          EXPECT_EQ(best.empty() ? got.substr(0, 9) : got, best.empty() ? "no common" : best);
        }
      }
    }
  }
}

TEST(Offer, ChoosesTheBestCommonTransport) {
  const auto choice = [](std::uint32_t ours_set, std::uint32_t theirs_set) {
    Offer ours = some_offer(), theirs = some_offer();
    ours.transports = ours_set;
    theirs.transports = theirs_set;
    const auto agreement = agree(ours, theirs);
    return agreement ? std::to_string(static_cast<std::uint32_t>(agreement->transport))
                     : std::string{agreement.error().message()};
  };
  EXPECT_EQ(choice(kUdp, kUdp | kFabric), "1");
  EXPECT_EQ(choice(kUdp | kFabric, kUdp | kFabric), "2");
  EXPECT_EQ(choice(kFabric, kUdp | kFabric), "2");
  EXPECT_EQ(choice(kUdp | 8, kUdp | 8), "1") << "what neither of us knows is not chosen";
  EXPECT_EQ(choice(kUdp, kFabric), "no common transport (ours udp, theirs fabric)");
  EXPECT_EQ(choice(kUdp | kFabric, 8), "no common transport (ours udp and fabric, theirs unknown ones)");
}

TEST(Offer, TheSmallerMtuHolds) {
  Offer ours = some_offer(), theirs = some_offer();
  ours.mtu = 1'472;
  const Agreement expected{.version = 2, .transport = Transport::fabric, .mtu = 1'472};
  EXPECT_EQ(agree(ours, theirs).value(), expected);
  EXPECT_EQ(agree(theirs, ours).value(), expected);
}

std::string addresses_of(const OfferedWorker& worker, const char* handshake) {
  Offer offer = some_offer();
  offer.workers = {worker};
  const auto addresses = data_addresses(offer, Address::parse(handshake).value());
  if (!addresses) {
    EXPECT_EQ(addresses.error().code(), Code::refused);
    return std::string{addresses.error().message()};
  }
  return addresses->front().address.to_string() + (addresses->front().validated ? "" : " claimed");
}

TEST(Offer, AWorkerWithoutAnIpIsWhereTheHandshakeWas) {
  EXPECT_EQ(addresses_of({.port = 5001}, "10.0.0.7:4433"), "10.0.0.7:5001");
  EXPECT_EQ(addresses_of({.port = 5001}, "[2001:db8::7]:4433"), "[2001:db8::7]:5001");
  EXPECT_EQ(addresses_of({.port = 5001}, "[fe80::7%1]:4433"), "[fe80::7%1]:5001");
}

TEST(Offer, AnotherIpIsKeptButOnlyClaimed) {
  EXPECT_EQ(addresses_of({.port = 1, .ip = ip_of("10.0.0.8:0")}, "10.0.0.7:4433"), "10.0.0.8:1 claimed");
  EXPECT_EQ(addresses_of({.port = 1, .ip = ip_of("10.0.0.7:0")}, "10.0.0.7:4433"), "10.0.0.7:1");
  EXPECT_EQ(addresses_of({.port = 1, .ip = ip_of("[fe80::8]:0")}, "[fe80::7%1]:4433"), "[fe80::8%1]:1 claimed");
}

TEST(Offer, RefusesAddressesThatNobodyReceivesAt) {
  const auto refused = [](const char* ip, const char* handshake = "10.0.0.7:4433") {
    return addresses_of({.worker = 3, .port = 5001, .ip = ip_of(ip)}, handshake);
  };
  EXPECT_EQ(addresses_of({.worker = 3}, "10.0.0.7:4433"), "the peer's offer names worker 3 without a port");
  for (const char* ip : {"0.0.0.0:0", "0.1.2.3:0", "[::]:0"}) EXPECT_THAT(refused(ip), HasSubstr("unspecified")) << ip;
  for (const char* ip : {"224.0.0.1:0", "239.255.255.255:0", "[ff02::1]:0"}) {
    EXPECT_THAT(refused(ip), HasSubstr("multicast")) << ip;
  }
  for (const char* ip : {"255.255.255.255:0", "240.0.0.1:0"}) EXPECT_THAT(refused(ip), HasSubstr("broadcast")) << ip;
  for (const char* ip : {"127.0.0.1:0", "127.9.9.9:0", "[::1]:0"})
    EXPECT_THAT(refused(ip), HasSubstr("loopback")) << ip;
  EXPECT_EQ(refused("127.0.0.2:0", "127.0.0.1:4433"), "127.0.0.2:5001 claimed");
  EXPECT_THAT(refused("[2001:db8::1]:0"), HasSubstr("IP family"));
  EXPECT_THAT(refused("10.0.0.1:0", "[2001:db8::1]:4433"), HasSubstr("IP family"));
}

TEST(Offer, LeavesOutWorkersOfTheOtherFamily) {
  Offer offer = some_offer();
  offer.workers.push_back({.worker = 2, .nic = 4, .port = 9, .ip = ip_of("[2001:db8::1]:0")});
  const auto addresses = data_addresses(offer, Address::v4(0x0a000007, 4433)).value();
  ASSERT_EQ(addresses.size(), 2u);
  EXPECT_EQ(addresses[1], (peer::DataAddress{.address = Address::v4(0x0a000008, 5002), .worker = 1, .nic = 1}));
}

TEST(Offer, EachBeginsWithTheNextWorker) {
  std::vector<int> firsts;
  for (std::uint64_t turn = 0; turn < 6; ++turn) {
    Offer offer = some_offer();
    offer.workers.push_back({.worker = 2, .port = 5003});
    begin_with(offer, turn);
    ASSERT_EQ(offer.workers.size(), 3u);
    firsts.push_back(offer.workers.front().worker);
    EXPECT_EQ(offer.workers[1].worker, (offer.workers[0].worker + 1) % 3) << "and goes on in the same order";
  }
  EXPECT_EQ(firsts, (std::vector<int>{0, 1, 2, 0, 1, 2}));
}

TEST(Offer, DescribesACredential) {
  Offer theirs = some_offer();
  theirs.workers.clear();
  for (std::uint16_t i = 0; i < 20; ++i) theirs.workers.push_back({.worker = i, .port = 6'000});
  const auto addresses = data_addresses(theirs, Address::v4(0x0a000007, 4433)).value();
  peer::Credential credential;
  describe(credential, theirs, agree(some_offer(), theirs).value(), addresses);
  EXPECT_EQ(credential.name(), "db7.example");
  EXPECT_EQ(credential.remote_incarnation, theirs.incarnation);
  EXPECT_EQ(credential.reset_key, theirs.reset_key);
  EXPECT_EQ(credential.version, 2);
  EXPECT_EQ(credential.transport, kFabric);
  EXPECT_EQ(credential.mtu, 8'972u);
  EXPECT_EQ(credential.worker_count, 20);
  ASSERT_EQ(credential.data_addresses().size(), peer::kMaxDataAddresses);
  EXPECT_EQ(credential.data_addresses()[7], addresses[7]);
}

}  // namespace
}  // namespace weir::handshake
