#include "burst_host.h"

namespace weir::bench {

ns3::TypeId BurstHost::GetTypeId() {
  static ns3::TypeId id = ns3::TypeId("weir::bench::BurstHost").SetParent<ns3::Application>();
  return id;
}

}  // namespace weir::bench
