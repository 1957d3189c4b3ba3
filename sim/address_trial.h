// AddressTrial: changes the addresses of callers behind NATs, and judges what becomes of their paths.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sim/checker.h"
#include "sim/copier.h"
#include "sim/host.h"
#include "sim/workload.h"
#include "sim/world.h"

namespace weir::sim {

struct AddressShape {
  std::vector<HostId> callers;  // whose addresses change; nobody calls them
  Duration interval{0};         // between two changes of one caller, on average
  double back = 0;              // of the changes, those to an earlier address
  double host = 0;              // those to another IP address, not only to another port
  double at_hello = 0;          // of the answers to hellos, those that a change follows at once
  CopierShape copier;
};

// One per run, if the scenario has one. The network must lose nothing but what goes to former addresses.
//
// After its last change of address a caller with calls outstanding is found by their callee within continues_within():
// the caller sends something within a keepalive interval. That packet may come while the callee rests from the attempt
// before (kAddressChangeInterval), or while the candidates of an attempt have their probe timeout; the next one comes
// within another keepalive interval. From then on a round trip and a probe timeout pass until the path moves.
class AddressTrial {
 public:
  AddressTrial(World& world, Checker& checker, const AddressShape& shape, Sabotage sabotage,
               const std::vector<std::unique_ptr<Host>>& hosts);

  void start();
  void stop();  // no more changes, and no more copies
  void check_end();

  std::uint64_t changes() const { return changes_; }
  std::uint64_t copies() const { return copier_.copies(); }
  // The longest time for which a caller with calls outstanding waited to be found at its new address.
  Duration longest_search() const { return longest_search_; }

 private:
  using Pair = std::pair<HostId, Address>;  // a callee, and an address that sends to it
  // What a callee received from an address and sent there.
  struct Account {
    std::uint64_t received = 0, sent = 0;
    Instant reached_at = Instant::never();  // something from the callee arrived at the address
    bool is_valid = false;                  // and the caller has sent something since
  };

  void plan_change(HostId caller);
  void change(HostId caller);
  Address next_address(HostId caller);
  void search(HostId caller, std::uint64_t change, Instant since);
  bool is_found(HostId caller, Instant since) const;
  Duration continues_within(HostId caller) const;
  void on_switch(const Packet& packet);
  void on_sent(HostId caller, const Packet& packet);
  void on_delivered(const Packet& packet);
  void judge_reply(HostId callee, const Packet& packet);
  void sabotage(HostId callee);
  bool is_caller(HostId host) const;

  World& world_;
  Checker& checker_;
  const AddressShape shape_;
  const Sabotage sabotage_;
  const std::vector<std::unique_ptr<Host>>& hosts_;
  Copier copier_;
  Random random_;
  std::map<HostId, std::vector<Address>> former_;  // addresses of a caller, the present one last
  std::map<HostId, std::uint64_t> last_change_;
  std::map<Pair, Account> accounts_;
  std::uint64_t changes_ = 0;
  Duration longest_search_{0};
  bool is_stopped_ = false;
};

}  // namespace weir::sim
