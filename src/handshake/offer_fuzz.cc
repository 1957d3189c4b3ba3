// Decodes arbitrary bytes as a peer's offer. What decodes must encode again and then say the same; an agreement with it
// must be the same from both sides.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "handshake/offer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weir;
  using namespace weir::handshake;
  const auto offer = decode_offer({reinterpret_cast<const std::byte*>(data), size});
  if (!offer) {
    WEIR_CHECK(offer.error().code() == Code::refused && !offer.error().message().empty(), "an error without a reason");
    return 0;
  }
  const auto encoded = encode(*offer);
  WEIR_CHECK(encoded.has_value() && encoded->size() <= Offer::kMaxBytes, "what was decoded cannot be said");
  const auto again = decode_offer(*encoded);
  WEIR_CHECK(again.has_value() && *again == *offer, "an offer changed between two codings");
  const auto twice = encode(*again);
  WEIR_CHECK(twice.has_value() && *twice == *encoded, "two encodings of one offer");

  Offer ours{.min_version = 1, .max_version = 2, .transports = 3, .mtu = 9'000};
  const auto here = agree(ours, *offer);
  const auto there = agree(*offer, ours);
  WEIR_CHECK(here.has_value() == there.has_value() && (!here || *here == *there), "the sides disagree");
  for (const Address& from : {Address::v4(0x7f000001, 1), Address::v4(0x0a000001, 1), Address{.ip = {0xfe, 0x80}}}) {
    const auto addresses = data_addresses(*offer, from);
    if (!addresses) continue;
    WEIR_CHECK(!addresses->empty() && addresses->size() <= Offer::kMaxWorkers, "no or too many addresses");
    for (const auto& worker : *addresses) {
      WEIR_CHECK(worker.address.port != 0 && worker.address.is_v4() == from.is_v4(), "an address that was not checked");
      WEIR_CHECK(worker.validated == (worker.address.ip == from.ip), "trusts an address that was only claimed");
    }
    peer::Credential credential;
    if (here) describe(credential, *offer, *here, *addresses);
    WEIR_CHECK(credential.data_addresses().size() <= peer::kMaxDataAddresses, "more than fit");
  }
  return 0;
}
