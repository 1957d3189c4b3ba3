// Cold peers: how long it takes from the first call to the last reply when nobody knows anybody.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/handshake/identities.h"
#include "bench/handshake/tls.h"
#include "weir/pool.h"

namespace weir::bench {

// Server pools on one shared worker thread; each call of first_replies_ns() is a new client pool's.
class ColdPools {
 public:
  ColdPools(const Identities& identities, std::size_t servers);
  ~ColdPools();
  ColdPools(const ColdPools&) = delete;
  ColdPools& operator=(const ColdPools&) = delete;

  // One call to each of the first `count` servers at once.
  std::int64_t first_replies_ns(std::size_t count);

 private:
  const Identities& identities_;
  Workers workers_;
  std::vector<Pool> servers_;
};

// The same with OpenSSL: listeners served by one thread, connections made by one other, the caller's.
class ColdTls {
 public:
  ColdTls(const Identities& identities, std::size_t servers);
  ~ColdTls();
  ColdTls(const ColdTls&) = delete;
  ColdTls& operator=(const ColdTls&) = delete;

  std::int64_t first_replies_ns(std::size_t count);

 private:
  void serve();

  TlsContext client_;
  TlsContext server_;
  std::vector<Socket> listeners_;
  std::vector<std::uint16_t> ports_;
  Socket server_poller_;
  Socket client_poller_;
  Socket stop_;
  std::thread thread_;
};

}  // namespace weir::bench
