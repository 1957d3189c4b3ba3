#include "sim/large_scenario.h"

#include <algorithm>
#include <chrono>

#include "sim/random_stream.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

// Payloads are freed as they arrive.
void in_pieces(Scenario& s, Random& random) {
  if (random.chance(0.5)) s.workload.piece_bytes = between(random, 1, 12) * 61'440;
}

// A megabyte costs the simulator as much as a thousand calls do: there are few hosts and few calls.
void few(Scenario& s, Random& random) {
  s.hosts = static_cast<std::uint32_t>(between(random, 2, 4));
  s.workload.callers.clear();
  s.workload.callees.clear();
  const bool both_ways = random.chance(0.5);
  for (HostId host = 0; host < s.hosts; ++host) {
    if (host + 1 < s.hosts || both_ways) s.workload.callers.push_back(host);
    if (host > 0 || both_ways) s.workload.callees.push_back(host);
  }
  if (!both_ways) s.workload.nested = 0;
  s.workload.calls_per_caller = 60;
  s.workload.window = static_cast<std::uint32_t>(between(random, 1, 10));
  s.workload.large = 0.4;
  s.workload.largest_large_bytes = random.chance(0.3) ? 8u << 20 : 1u << 20;
  s.workload.shortest_deadline = 8s;
  s.workload.longest_deadline = 12s;
  s.timeouts.default_deadline = 12s;
}

}  // namespace

void large(Scenario& s, Random& random) {
  few(s, random);
  switch (random.below(5)) {
    case 0:
      s.workload.must_succeed = true;
      s.least_success = 0.9;
      break;
    case 1:
      s.faults.loss = static_cast<double>(random.below(31)) / 100;
      break;
    case 2:
      s.faults.reorder = 0.05 + random.fraction() * 0.6;
      s.faults.reorder_delay = between(random, 50us, 2ms);
      s.faults.duplicate = random.fraction() * 0.3;
      break;
    case 3:
      s.faults.corrupt = 0.01 + random.fraction() * 0.1;
      break;
    default:
      s.faults = {.loss = random.fraction() * 0.1,
                  .duplicate = random.fraction() * 0.1,
                  .reorder = random.fraction() * 0.3,
                  .reorder_delay = between(random, 10us, 2ms),
                  .corrupt = random.fraction() * 0.03};
      break;
  }
  s.rotate_packets = random.chance(0.5) ? between(random, 16, 256) : 1u << 22;
  // What loses a packet in three carries eight megabytes in minutes.
  if (s.faults.loss + s.faults.corrupt > 0.05) {
    s.workload.largest_large_bytes = 200'000;
    s.workload.calls_per_caller = 30;
  }
  if (!s.workload.must_succeed) s.least_success = 0.8;
  in_pieces(s, random);
}

// Regions are taken back at any moment. Nobody notices, as long as it does not happen to one message again and again.
void large_revoke(Scenario& s, Random& random) {
  few(s, random);
  if (random.chance(0.5)) {
    s.revocations = static_cast<std::uint32_t>(between(random, 4, 8));
  } else {  // while the first messages are opened, granted, written and acknowledged
    for (std::uint32_t datagram = 8, i = 0; i < 8; ++i) {
      datagram += static_cast<std::uint32_t>(between(random, 1, 40));
      s.revokes_at.push_back({.host = static_cast<HostId>(random.below(s.hosts)),
                              .datagram = datagram,
                              .delay = between(random, 0us, 2 * s.link.latency)});
    }
  }
  s.faults.reorder = random.chance(0.5) ? random.fraction() * 0.3 : 0;
  s.faults.reorder_delay = between(random, 10us, 3ms);
  s.faults.loss = random.chance(0.3) ? random.fraction() * 0.05 : 0;
  s.workload.must_succeed = true;
  s.workload.nested = 0;
  s.least_success = 0.9;
  in_pieces(s, random);
}

// Less memory than the senders want, and senders that fall asleep while they have some of it.
void large_exhausted(Scenario& s, Random& random) {
  few(s, random);
  s.hosts = static_cast<std::uint32_t>(between(random, 3, 6));
  s.workload.callers.clear();
  for (HostId host = 1; host < s.hosts; ++host) s.workload.callers.push_back(host);
  s.workload.callees = {0};
  s.workload.nested = 0;
  s.workload.large = 0.8;
  s.workload.largest_large_bytes = 300'000;
  s.limits.message_bytes = 300'000;
  s.limits.large_request_bytes = between(random, 300'000, 800'000);
  s.limits.large_reply_bytes = between(random, 300'000, 800'000);
  s.limits.nested_large_request_bytes = 300'000;
  s.limits.large_bytes_per_peer = between(random, 300'000, 600'000);
  s.workload.longest_delay = 50ms;
  s.least_success = 0.9;
  if (random.chance(0.6)) {
    s.timeouts.silence = s.timeouts.connect = 6s;
    s.stalls = static_cast<std::uint32_t>(between(random, 1, 3));
    s.longest_stall = 3s;
    s.workload.shortest_deadline = 15s;
    s.workload.longest_deadline = 20s;
    s.timeouts.default_deadline = 20s;
  }
}

// What was granted ahead of need grows old between messages; regions live as long as a message that the wire delays,
// and a sender sleeps about as long as a token or a region lives.
void large_expiry(Scenario& s, Random& random) {
  few(s, random);
  s.workload.large = 1;
  s.workload.calls_per_caller = 20;
  s.workload.window = static_cast<std::uint32_t>(between(random, 1, 3));
  s.workload.largest_large_bytes = 500'000;
  s.workload.think_time = random.chance(0.5) ? 12s : 6s;
  s.workload.nested = 0;
  s.link.latency = random.chance(0.5) ? between(random, 10us, 1ms) : between(random, 50ms, 300ms);
  s.faults.loss = random.chance(0.5) ? random.fraction() * 0.05 : 0;
  s.faults.reorder = random.chance(0.5) ? random.fraction() * 0.3 : 0;
  s.faults.reorder_delay = between(random, 1ms, 400ms);
  s.span = 60s;
  s.stalls = static_cast<std::uint32_t>(between(random, 2, 6));
  s.longest_stall = 11s;
  s.timeouts.silence = s.timeouts.connect = 30s;
  s.workload.shortest_deadline = 60s;
  s.workload.longest_deadline = 90s;
  s.timeouts.default_deadline = 90s;
  s.limits.message_bytes = 500'000;
  s.limits.large_request_bytes = between(random, 500'000, 16'000'000);
  s.limits.large_bytes_per_peer = s.limits.large_request_bytes;
  s.least_success = 0.8;
}

// Messages that take about as long as a region lives, over a thin link, between hosts that stop meanwhile and are late
// for their timers. Whatever is due at once when a host goes on, every message arrives.
void large_stall(Scenario& s, Random& random) {
  few(s, random);
  s.hosts = 2;
  s.workload.callers = {0};
  s.workload.callees = {1};
  s.workload.nested = 0;
  s.link.bytes_per_second = between(random, 100'000, 1'000'000);
  s.link.datagram_bytes = random.chance(0.5) ? 8'972 : 65'507;
  s.socket.receive_buffer_bytes = random.chance(0.5) ? 212'992 : 1u << 20;
  s.workload.large = 0.8;
  s.workload.largest_large_bytes = 3u << 20;
  s.workload.calls_per_caller = 16;
  s.workload.window = static_cast<std::uint32_t>(between(random, 2, 10));
  s.workload.think_time = between(random, 1ms, 500ms);
  s.workload.cancelled = 0;
  s.span = 40s;
  s.stalls = static_cast<std::uint32_t>(between(random, 4, 10));
  for (std::uint32_t datagram = 0, i = 0; i < 4; ++i) {
    datagram += static_cast<std::uint32_t>(between(random, 1, 200));
    s.stalls_at.push_back({.host = static_cast<HostId>(random.below(s.hosts)), .datagram = datagram});
  }
  s.longest_stall = kLongestStall;
  s.timer_lateness = any_length(random, 1us, 500ms);
  s.timeouts.silence = s.timeouts.connect = 60s;
  s.timeouts.default_deadline = 200s;
  s.workload.shortest_deadline = 150s;
  s.workload.longest_deadline = 200s;
  s.workload.must_succeed = true;
}

void large_restart(Scenario& s, Random& random) {
  few(s, random);
  s.crashes = static_cast<std::uint32_t>(between(random, 1, 4));
  s.closings = static_cast<std::uint32_t>(random.below(3));
  s.longest_absence = random.chance(0.5) ? 5ms : 600ms;
  s.reports_closed_ports = random.chance(0.5);
  s.faults.loss = random.chance(0.3) ? 0.02 : 0;
  in_pieces(s, random);
}

// Somebody on the wire sends data packets again, changed and unchanged, to whom they were for and to others.
void large_hostile(Scenario& s, Random& random) {
  few(s, random);
  s.workload.calls_per_caller = 12;
  s.workload.largest_large_bytes = 200'000;
  s.attack_interval = between(random, 50us, 500us);
  s.crashes = static_cast<std::uint32_t>(random.below(2));
  s.longest_absence = 20ms;
  s.rotate_packets = random.chance(0.5) ? 64 : 1u << 22;
}

// Members that know the secret, call as others do, and say besides what no engine would. The honest ones call each
// other all the while.
void large_hostile_sender(Scenario& s, Random& random) {
  few(s, random);
  const auto honest = static_cast<std::uint32_t>(between(random, 2, 3));
  s.hostile.senders = static_cast<std::uint32_t>(between(random, 1, 3));
  s.hosts = honest + s.hostile.senders;
  s.workload.callers.clear();
  s.workload.callees = {0};
  for (HostId host = 1; host < honest; ++host) s.workload.callers.push_back(host);
  if (random.chance(0.3)) {
    s.workload.callers.push_back(0);
    s.workload.callees.push_back(1);
  }
  s.workload.nested = 0;
  s.workload.calls_per_caller = 30;
  s.workload.window = static_cast<std::uint32_t>(between(random, 1, 6));
  s.workload.large = 0.7;
  s.workload.largest_large_bytes = random.chance(0.2) ? 1'500'000 : 300'000;
  s.workload.shortest_deadline = 25s;
  s.workload.longest_deadline = 30s;
  s.timeouts.default_deadline = 30s;
  s.timeouts.idle_peer = 600s;  // so that no path takes along what somebody forgot to take back
  s.limits.calls_per_peer = random.chance(0.5) ? 16 : 64;
  s.rotate_packets = random.chance(0.3) ? between(random, 64, 256) : 1u << 22;
  constexpr Duration kSpans[] = {300ms, 3s, 15s};
  s.span = kSpans[random.below(3)];
  s.workload.think_time = s.span * (2 * s.workload.window) / s.workload.calls_per_caller;
  const bool are_long = s.workload.largest_large_bytes > 1'000'000;  // each takes a thousand packets
  s.hostile.interval = s.span / static_cast<std::int64_t>(between(random, 300, are_long ? 700 : 3'000));
  if (random.chance(0.6)) {
    s.faults = {.loss = random.chance(0.7) ? random.fraction() * 0.2 : 0,
                .duplicate = random.fraction() * 0.2,
                .reorder = random.fraction() * 0.4,
                .reorder_delay = between(random, 10us, 2ms)};
  }
  // Either there is memory for everybody's share, and hostile ones can take nothing from others, or there is not, and
  // these wait until it is taken back.
  const std::size_t largest = s.workload.largest_large_bytes + 20'000;
  s.hostile.largest_bytes = s.limits.message_bytes = largest;
  const bool is_short = random.chance(0.5);
  s.limits.large_bytes_per_peer = between(random, largest, (is_short ? 2 : 10) * largest);
  s.limits.nested_large_request_bytes = s.limits.large_bytes_per_peer;
  s.limits.large_reply_bytes = s.hosts * s.limits.large_bytes_per_peer;
  s.limits.large_request_bytes = is_short
                                     ? between(random, s.limits.large_bytes_per_peer, 2 * s.limits.large_bytes_per_peer)
                                     : s.hosts * s.limits.large_bytes_per_peer;
  s.workload.must_succeed = !is_short && s.faults.loss == 0;
  s.least_success = 0.9;
  if (random.chance(0.15)) {  // by certificate, as the others do
    s.identity.emplace();
    s.timeouts.connect = 3s;
    s.timeouts.handshake = 5s;
  }
  if (is_short && random.chance(0.5)) {
    s.hostile.hoards = true;
    s.span = 40s;
    s.hostile.interval = s.span / static_cast<std::int64_t>(between(random, 1'000, 4'000));
    s.workload.window = 1;
    s.workload.calls_per_caller = 40;
    s.workload.think_time = 2s;
    s.workload.shortest_deadline = 60s;
    s.workload.longest_deadline = 70s;
    s.timeouts.default_deadline = 70s;
    return;
  }
  if (random.chance(0.3)) {
    for (std::uint32_t i = 0, datagram = 0; i < 4; ++i) {
      datagram += static_cast<std::uint32_t>(between(random, 100, 1'500));
      s.revokes_at.push_back({.host = 0, .datagram = datagram, .delay = between(random, 0us, 1ms)});
    }
  }
  if (random.chance(0.2)) {
    s.crashes_at.push_back({.host = static_cast<HostId>(random.below(s.hosts)),
                            .datagram = static_cast<std::uint32_t>(between(random, 200, 4'000)),
                            .absence = random.chance(0.5) ? between(random, 1us, 5ms) : between(random, 5ms, 900ms)});
    s.workload.must_succeed = false;
    s.least_success = 0;
  }
}

}  // namespace weir::sim
