#include "handshake/offer.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstring>
#include <string_view>

namespace weir::handshake {
namespace {

enum class Field : std::uint16_t {
  versions = 1,
  incarnation,
  name,
  workers,
  transports,
  mtu,
  reset_key = 8,
};
constexpr Field kFields[] = {Field::versions,   Field::incarnation, Field::name,     Field::workers,
                             Field::transports, Field::mtu,         Field::reset_key};
constexpr std::uint16_t kLastField = 8;
constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kWorkerBytes = 7;  // without an IP
constexpr std::size_t kIpBytes = 16;

constexpr std::string_view name_of(Field field) {
  constexpr std::string_view kNames[] = {"",    "versions", "incarnation", "name", "workers", "transports",
                                         "mtu", "",         "reset key"};
  return kNames[static_cast<std::size_t>(field)];
}

std::unexpected<Error> refuse(std::string sentence) {
  return std::unexpected(Error{Code::refused, "the peer's offer " + std::move(sentence)});
}

// What both we and the peer must keep to. Empty: nothing is wrong.
std::string fault_of(const Offer& offer) {
  if (offer.min_version == 0 || offer.min_version > offer.max_version) {
    return "has an impossible range of versions (" + std::to_string(offer.min_version) + "-" +
           std::to_string(offer.max_version) + ")";
  }
  if (offer.name.size() > Offer::kMaxName) return "has a name of more than 64 bytes";
  if (std::ranges::any_of(offer.name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    return "has a name with control characters";
  }
  if (offer.workers.empty()) return "names no worker";
  if (offer.workers.size() > Offer::kMaxWorkers) return "names more than 64 workers";
  std::vector<std::uint16_t> numbers;
  for (const OfferedWorker& worker : offer.workers) numbers.push_back(worker.worker);
  std::ranges::sort(numbers);
  if (const auto twice = std::ranges::adjacent_find(numbers); twice != numbers.end()) {
    return "names worker " + std::to_string(*twice) + " twice";
  }
  if (offer.transports == 0) return "has no transport";
  if (offer.mtu < Offer::kMinMtu || offer.mtu > Offer::kMaxMtu) {
    return "has an mtu of " + std::to_string(offer.mtu) + " (1200-65535 are possible)";
  }
  return {};
}

// ---- encoding ----

class Writer {
 public:
  Writer& begin(Field field) {
    number(static_cast<std::uint16_t>(field));
    number(std::uint16_t{0});
    start_ = bytes_.size();
    return *this;
  }
  template <class T>
  Writer& number(T value) {
    std::byte encoded[sizeof(T)];
    store(encoded, value);
    return raw(encoded);
  }
  Writer& raw(ByteSpan bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  void end() { store(bytes_.data() + start_ - 2, static_cast<std::uint16_t>(bytes_.size() - start_)); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
  std::size_t start_ = 0;
};

// ---- decoding ----

std::string wrong_size(Field field, std::size_t size) {
  return "has a " + std::string{name_of(field)} + " field of " + std::to_string(size) + " bytes";
}

// Empty: fine.
std::string decode_workers(ByteSpan value, std::vector<OfferedWorker>& out) {
  while (!value.empty()) {
    if (value.size() < kWorkerBytes) return "ends in the middle of a worker";
    if (out.size() == Offer::kMaxWorkers) return "names more than 64 workers";
    OfferedWorker worker{.worker = load<std::uint16_t>(value.data()),
                         .nic = load<std::uint16_t>(value.data() + 2),
                         .port = load<std::uint16_t>(value.data() + 4)};
    const auto has_ip = static_cast<std::uint8_t>(value[6]);
    value = value.subspan(kWorkerBytes);
    if (has_ip > 1) return "has a worker with unknown flags";
    if (has_ip == 1) {
      if (value.size() < kIpBytes) return "ends in the middle of a worker";
      std::memcpy(worker.ip.emplace().data(), value.data(), kIpBytes);
      value = value.subspan(kIpBytes);
    }
    out.push_back(worker);
  }
  return {};
}

// Sizes were checked against this before. 0: any.
constexpr std::size_t size_of(Field field) {
  constexpr std::size_t kSizes[] = {0, 2, 16, 0, 0, 4, 4, 0, 16};
  return kSizes[static_cast<std::size_t>(field)];
}

std::string decode_field(Field field, ByteSpan value, Offer& offer) {
  if (size_of(field) != 0 && value.size() != size_of(field)) return wrong_size(field, value.size());
  switch (field) {
    case Field::versions:
      offer.min_version = static_cast<std::uint8_t>(value[0]);
      offer.max_version = static_cast<std::uint8_t>(value[1]);
      break;
    case Field::incarnation:
      std::ranges::copy(value, offer.incarnation.begin());
      break;
    case Field::name:
      if (value.size() > Offer::kMaxName) return wrong_size(field, value.size());
      offer.name.assign(reinterpret_cast<const char*>(value.data()), value.size());
      break;
    case Field::workers:
      return decode_workers(value, offer.workers);
    case Field::transports:
      offer.transports = load<std::uint32_t>(value.data());
      break;
    case Field::mtu:
      offer.mtu = load<std::uint32_t>(value.data());
      break;
    case Field::reset_key:
      std::ranges::copy(value, offer.reset_key.begin());
      break;
  }
  return {};
}

// ---- agreement ----

std::string versions_of(const Offer& offer) {
  return std::to_string(offer.min_version) + "-" + std::to_string(offer.max_version);
}

std::string transports_of(const Offer& offer) {
  std::string text;
  const auto add = [&text](std::string_view name) { text += (text.empty() ? "" : " and ") + std::string{name}; };
  if ((offer.transports & static_cast<std::uint32_t>(Transport::udp)) != 0) add("udp");
  if ((offer.transports & static_cast<std::uint32_t>(Transport::fabric)) != 0) add("fabric");
  return text.empty() ? "unknown ones" : text;
}

// ---- addresses ----

bool is_loopback(const Address& address) {
  if (address.is_v4()) return address.ip[12] == 127;
  return std::all_of(address.ip.begin(), address.ip.end() - 1, [](std::uint8_t b) { return b == 0; }) &&
         address.ip[15] == 1;
}

// Empty: somebody may receive there.
std::string_view fault_of(const Address& address, const Address& handshake) {
  if (address.port == 0) return "without a port";
  if (address.is_v4()) {
    if (address.ip[12] == 0) return "with an unspecified address";
    if (address.ip[12] >= 224 && address.ip[12] < 240) return "with a multicast address";
    if (address.ip[12] >= 240) return "with a broadcast or reserved address";
  } else {
    if (address.ip == std::array<std::uint8_t, 16>{}) return "with an unspecified address";
    if (address.ip[0] == 0xff) return "with a multicast address";
  }
  if (is_loopback(address) && !is_loopback(handshake)) return "with a loopback address, though it is not on this host";
  return {};
}

bool is_link_local(const Address& address) { return address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80; }

}  // namespace

void begin_with(Offer& offer, std::uint64_t turn) {
  if (offer.workers.empty()) return;
  std::ranges::rotate(offer.workers, offer.workers.begin() + static_cast<std::ptrdiff_t>(turn % offer.workers.size()));
}

Result<std::vector<std::byte>> encode(const Offer& offer) {
  if (const std::string fault = fault_of(offer); !fault.empty()) {
    return std::unexpected(Error{Code::invalid_argument, "our offer " + fault});
  }
  Writer writer;
  writer.begin(Field::versions).number(offer.min_version).number(offer.max_version).end();
  writer.begin(Field::incarnation).raw(offer.incarnation).end();
  writer.begin(Field::name).raw(std::as_bytes(std::span{offer.name})).end();
  writer.begin(Field::workers);
  for (const OfferedWorker& worker : offer.workers) {
    writer.number(worker.worker).number(worker.nic).number(worker.port);
    writer.number(static_cast<std::uint8_t>(worker.ip ? 1 : 0));
    if (worker.ip) writer.raw(std::as_bytes(std::span{*worker.ip}));
  }
  writer.end();
  writer.begin(Field::transports).number(offer.transports).end();
  writer.begin(Field::mtu).number(offer.mtu).end();
  writer.begin(Field::reset_key).raw(offer.reset_key).end();
  static_assert(std::size(kFields) * kHeaderBytes + 2 + 16 + Offer::kMaxName +
                    Offer::kMaxWorkers * (kWorkerBytes + kIpBytes) + 40 <
                Offer::kMaxBytes);
  return writer.take();
}

Result<Offer> decode_offer(ByteSpan bytes) {
  if (bytes.size() > Offer::kMaxBytes) return refuse("is longer than 4096 bytes");
  Offer offer;
  std::bitset<kLastField + 1> seen;
  while (!bytes.empty()) {
    if (bytes.size() < kHeaderBytes) return refuse("ends in the middle of a field");
    const auto type = load<std::uint16_t>(bytes.data());
    const std::size_t size = load<std::uint16_t>(bytes.data() + 2);
    bytes = bytes.subspan(kHeaderBytes);
    if (bytes.size() < size) return refuse("ends in the middle of a field");
    const ByteSpan value = bytes.first(size);
    bytes = bytes.subspan(size);
    const auto field = static_cast<Field>(type);
    if (std::ranges::find(kFields, field) == std::end(kFields)) continue;  // of another release
    if (seen[type]) return refuse("says its " + std::string{name_of(field)} + " twice");
    seen.set(type);
    if (std::string fault = decode_field(field, value, offer); !fault.empty()) return refuse(std::move(fault));
  }
  for (const Field field : kFields) {
    if (!seen[static_cast<std::size_t>(field)]) return refuse("does not say its " + std::string{name_of(field)});
  }
  if (std::string fault = fault_of(offer); !fault.empty()) return refuse(std::move(fault));
  return offer;
}

Result<Agreement> agree(const Offer& ours, const Offer& theirs) {
  Agreement agreement{.version = std::min(ours.max_version, theirs.max_version), .mtu = std::min(ours.mtu, theirs.mtu)};
  if (agreement.version < std::max(ours.min_version, theirs.min_version)) {
    return std::unexpected(Error{Code::refused, "no common protocol version (ours " + versions_of(ours) + ", theirs " +
                                                    versions_of(theirs) + ")"});
  }
  constexpr auto kKnown = static_cast<std::uint32_t>(Transport::udp) | static_cast<std::uint32_t>(Transport::fabric);
  const std::uint32_t common = ours.transports & theirs.transports & kKnown;
  if (common == 0) {
    return std::unexpected(Error{
        Code::refused, "no common transport (ours " + transports_of(ours) + ", theirs " + transports_of(theirs) + ")"});
  }
  agreement.transport = static_cast<Transport>(std::bit_floor(common));
  return agreement;
}

Result<std::vector<peer::DataAddress>> data_addresses(const Offer& theirs, const Address& handshake) {
  std::vector<peer::DataAddress> usable;
  for (const OfferedWorker& worker : theirs.workers) {
    Address address{.ip = worker.ip.value_or(handshake.ip), .port = worker.port};
    if (is_link_local(address)) address.scope = handshake.scope;  // there is no other link that we know of
    if (const std::string_view fault = fault_of(address, handshake); !fault.empty()) {
      return refuse("names worker " + std::to_string(worker.worker) + " " + std::string{fault});
    }
    if (address.is_v4() != handshake.is_v4()) continue;
    usable.push_back(
        {.address = address, .worker = worker.worker, .nic = worker.nic, .validated = address.ip == handshake.ip});
  }
  if (usable.empty()) return refuse("names no worker of the handshake's IP family");
  return usable;
}

void describe(peer::Credential& credential, const Offer& theirs, const Agreement& agreement,
              std::span<const peer::DataAddress> addresses) {
  credential.reset_key = theirs.reset_key;
  credential.remote_incarnation = theirs.incarnation;
  credential.set_name(theirs.name);
  credential.version = agreement.version;
  credential.transport = static_cast<std::uint8_t>(agreement.transport);
  credential.mtu = agreement.mtu;
  credential.worker_count = static_cast<std::uint16_t>(addresses.size());
  credential.workers = {};
  std::ranges::copy(addresses.first(std::min(addresses.size(), credential.workers.size())), credential.workers.begin());
}

}  // namespace weir::handshake
