// Prints how senders that share a link fare, in virtual time: loss, use of the link, longest queue, fairness. Not built
// by CMake yet: g++ -std=c++23 -O2 -Iinclude -Isrc -I. src/recovery/bottleneck_table.cc src/recovery/bottleneck.cc
#include <cstdio>
#include <cstdlib>

#include "recovery/link_testing.h"
using namespace weir;
using namespace weir::recovery;
using namespace weir::recovery::testing;
void run(const char* name, LinkOptions o, std::size_t n, int seconds = 4, int warm = 2, bool trace = false) {
  SharedLinkRun r(o, n, 1);
  auto total = [&] {
    SenderReport t;
    for (std::size_t i = 0; i < n; ++i) {
      auto& x = r.sender(i).report;
      t.sent += x.sent;
      t.delivered += x.delivered;
      t.dropped += x.dropped;
    }
    return t;
  };
  SenderReport before;
  for (int ms = 0; ms < (warm + seconds) * 1000; ms += 50) {
    if (ms == warm * 1000) {
      before = total();
      r.forget_longest_queue();
    }
    r.run_for(std::chrono::milliseconds(50));
    if (trace && ms < 6000) {
      auto& m = r.sender(0).model;
      std::printf("%5d phase %d bw %.2f MB/s pace %.2f win %lu inflight %lu bound %ld rtt %.3f ms\n", ms,
                  int(m.phase()), m.bandwidth() / 1e6, m.pacing_rate() / 1e6, m.window(), m.in_flight(),
                  (long)m.inflight_bound(), m.minimum_rtt().count() / 1e6);
    }
  }
  if (trace)
    for (std::size_t i = 0; i < n; ++i) {
      auto& m = r.sender(i).model;
      std::printf("sender %zu delivered %lu phase %d bw %.3f pace %.3f win %lu infl %lu bound %ld\n", i,
                  r.sender(i).report.delivered, int(m.phase()), m.bandwidth() / 1e6, m.pacing_rate() / 1e6, m.window(),
                  m.in_flight(), (long)m.inflight_bound());
    }
  auto t = total();
  double least = 1e18, most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double d = r.sender(i).report.delivered;
    least = std::min(least, d);
    most = std::max(most, d);
  }
  std::printf("%-34s n=%3zu warm: drop %5.2f%% | drop %5.2f%% util %.3f longest queue %.2f; least/most %.2f\n", name, n,
              100.0 * before.dropped / before.sent, 100.0 * (t.dropped - before.dropped) / (t.sent - before.sent),
              (t.delivered - before.delivered) / (double(o.bytes_per_s) * seconds),
              r.longest_queue() / double(o.queue_bytes), least / most);
}
int main(int c, char** v) {
  bool tr = c > 1;
  LinkOptions o;
  run("250M 64K", o, 1, 4, 2, tr);
  {
    auto p = o;
    p.queue_bytes = 16 << 10;
    run("250M 16K", p, 1);
  }
  {
    auto p = o;
    p.queue_bytes = 256 << 10;
    run("250M 256K", p, 1);
  }
  {
    auto p = o;
    p.queue_bytes = 1 << 20;
    run("250M 1M", p, 1);
  }
  {
    auto p = o;
    p.bytes_per_s /= 10;
    p.queue_bytes = 6554;
    run("25M 6.4K", p, 1, 10, 5);
  }
  {
    auto p = o;
    p.bytes_per_s *= 10;
    p.queue_bytes *= 10;
    run("2500M 640K", p, 1);
  }
  run("250M 64K 4 senders", o, 4, 4, 2, c > 2);
  run("250M 64K 30 senders", o, 30, 6, 4);
  run("250M 64K 100 senders", o, 100, 6, 4);
  run("250M 64K 300 senders", o, 300, 6, 4);
  {
    auto p = o;
    p.random_loss = 0.001;
    run("250M 64K loss .1%", p, 1);
  }
  {
    auto p = o;
    p.random_loss = 0.02;
    run("250M 64K loss 2%", p, 1);
  }
  {
    auto p = o;
    p.base_rtt = std::chrono::milliseconds(40);
    p.queue_bytes = 300 << 10;
    run("250M 300K 40ms", p, 1, 20, 5);
  }
  {
    auto p = o;
    p.base_rtt = std::chrono::microseconds(20);
    p.ack_delay = std::chrono::microseconds(50);
    p.jitter = std::chrono::microseconds(1);
    p.bytes_per_s = 25'000'000'000 / 8;
    p.queue_bytes = 128 << 10;
    run("25G 128K 20us", p, 1, 1, 1);
    run("25G 128K 20us", p, 100, 1, 1);
  }
}
