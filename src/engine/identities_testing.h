// Hosts of a Net with identities: whoever wants a credential for another host has it at once, and so has the other.
#pragma once

#include <deque>
#include <map>
#include <utility>

#include "engine/book_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine::testing {

// Outlives the net, whose engines have its books.
class Identities {
 public:
  int add(Net& net, EngineConfig config) {
    books_.emplace_back();
    config.credentials = &books_.back();
    config.secret.reset();
    config.signer = kTestSigner;
    config.incarnation.fill(static_cast<std::byte>(books_.size()));
    const int host = net.add(config);
    book_of_[host] = &books_.back();
    net.after_turn = [this, &net](int turned) { hand_out(net, turned); };
    return host;
  }
  std::map<int, std::uint64_t> certificate_of;  // by host; none: each of its paths is a member of its own

  std::uint32_t connect(Net& net, int from, int to) {
    const auto [found, is_new] = peers_.try_emplace({from, to});
    if (is_new) {
      found->second = net.engine(from).connect(net.address(to)).value();
      hosts_[{from, found->second}] = to;
    }
    return found->second;
  }

 private:
  void hand_out(Net& net, int host) {
    Wanted wanted;
    while (book_of_.contains(host) && net.engine(host).take_wanted(wanted)) {
      const int to = hosts_.at({host, wanted.peer});
      Agreed agreed = agree(next_++, net.address(to));
      agreed.theirs.member = certificate_of[host];
      book_of_.at(to)->known[agreed.ours.id] = agreed.theirs;
      net.engine(host).install(wanted.peer, agreed.ours, net.now);
    }
  }

  std::deque<Book> books_;
  std::map<int, Book*> book_of_;
  std::map<std::pair<int, int>, std::uint32_t> peers_;
  std::map<std::pair<int, std::uint32_t>, int> hosts_;
  std::uint8_t next_ = 1;  // enough for as long as a test goes on; then they come again
};

}  // namespace weir::engine::testing
