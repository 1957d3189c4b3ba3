// Handshakes with mutual authentication: Weir's QUIC endpoints and pools next to TLS 1.3 over TCP by OpenSSL, with the
// same certificates, in one process and one run.
//
// Rates are handshakes per second of CPU time of one thread that plays both sides and never waits: what one core does
// if nobody disturbs it. Contestants take turns; a round gives one ratio each, and the median of the ratios counts.
#include <fmt/format.h>
#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2.h>
#include <openssl/crypto.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/weir/json.h"
#include "bench/handshake/cold.h"
#include "bench/handshake/endpoints.h"
#include "bench/handshake/harness.h"
#include "bench/handshake/identities.h"
#include "bench/handshake/tls.h"

namespace weir::bench {
namespace {

using command::JsonObject;

const std::map<std::string, handshake::KeyType> kKeyTypes{{"ed25519", handshake::KeyType::ed25519},
                                                          {"p256", handshake::KeyType::p256}};
constexpr int kWarmUps = 20;  // handshakes of each contestant, not counted

struct Options {
  int pairs = 7;
  double seconds = 0.5;
  int core = -1;
  std::size_t peers = 300;
  int cold_samples = 15;  // of a single cold peer, in each turn
  std::vector<std::string> keys;
  std::vector<std::string> parts;
  bool json = false;
  bool quick = false;
};

// Figures of two contestants, one pair per round.
class Comparison {
 public:
  Comparison(std::string name, std::string unit) : name_(std::move(name)), unit_(std::move(unit)) {}

  void add(double weir, double tls) {
    weir_.push_back(weir);
    tls_.push_back(tls);
    ratios_.push_back(weir / tls);
  }
  void print(std::string_view what) const {
    const auto [lowest, highest] = std::ranges::minmax(ratios_);
    fmt::print("  {:<34} weir {:>8.1f} {:<4}  TLS {:>8.1f} {:<4}  weir/TLS {:.2f} x  ({:.2f} .. {:.2f})\n", what,
               median(weir_), unit_, median(tls_), unit_, median(ratios_), lowest, highest);
    std::fflush(stdout);
  }
  std::string json() const {
    return JsonObject()
        .add("name", name_)
        .add("unit", unit_)
        .add("weir_median", median(weir_))
        .add("tls_median", median(tls_))
        .add("ratio_median", median(ratios_))
        .add("ratio_min", std::ranges::min(ratios_))
        .add("ratio_max", std::ranges::max(ratios_))
        .add("pairs", ratios_.size())
        .add_text("weir", list(weir_))
        .add_text("tls", list(tls_))
        .text();
  }

 private:
  static std::string list(const std::vector<double>& values) {
    std::string text;
    for (const double value : values) text += fmt::format("{}{:.3f}", text.empty() ? "" : ", ", value);
    return '[' + text + ']';
  }

  std::string name_;
  std::string unit_;
  std::vector<double> weir_;
  std::vector<double> tls_;
  std::vector<double> ratios_;
};

double rate(auto& contestant, double seconds) {
  const auto budget_ns = static_cast<std::int64_t>(seconds * 1e9);
  const std::int64_t began_ns = thread_cpu_ns();
  std::int64_t used_ns = 0;
  int count = 0;
  while (used_ns < budget_ns) {
    contestant.shake();
    ++count;
    used_ns = thread_cpu_ns() - began_ns;
  }
  return count / (static_cast<double>(used_ns) * 1e-9);
}

std::vector<std::string> compare_rates(const Options& options, const Identities& identities) {
  const Pinned pinned(options.core);
  Endpoints in_memory(identities, Endpoints::Carrier::memory);
  Endpoints over_udp(identities, Endpoints::Carrier::udp);
  TlsPair tls(identities);
  for (int i = 0; i < kWarmUps; ++i) {
    in_memory.shake();
    over_udp.shake();
    tls.shake();
  }
  Comparison memory("rate_memory", "1/s");
  Comparison udp("rate_udp", "1/s");
  for (int i = 0; i < options.pairs; ++i) {
    const double weir_udp = rate(over_udp, options.seconds);
    const double tls_after_udp = rate(tls, options.seconds);
    udp.add(weir_udp, tls_after_udp);
    const double weir_memory = rate(in_memory, options.seconds);
    const double tls_after_memory = rate(tls, options.seconds);
    memory.add(weir_memory, tls_after_memory);
  }
  if (!options.json) {
    udp.print("handshakes, QUIC over UDP");
    memory.print("handshakes, QUIC in memory");
  }
  return {udp.json(), memory.json()};
}

double median_ms(auto& contestant, std::size_t peers, int samples) {
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) times.push_back(static_cast<double>(contestant.first_replies_ns(peers)) * 1e-6);
  return median(std::move(times));
}

std::vector<std::string> compare_cold_peers(const Options& options, const Identities& identities) {
  ColdPools pools(identities, options.peers);
  ColdTls tls(identities, options.peers);
  pools.first_replies_ns(1);
  tls.first_replies_ns(1);
  Comparison one("cold_one", "ms");
  Comparison many("cold_many", "ms");
  for (int i = 0; i < options.pairs; ++i) {
    const double weir_one = median_ms(pools, 1, options.cold_samples);
    const double tls_one = median_ms(tls, 1, options.cold_samples);
    one.add(weir_one, tls_one);
    const double weir_many = median_ms(pools, options.peers, 1);
    const double tls_many = median_ms(tls, options.peers, 1);
    many.add(weir_many, tls_many);
  }
  if (!options.json) {
    one.print("first reply, 1 cold peer");
    many.print(fmt::format("last reply, {} cold peers at once", options.peers));
  }
  return {one.json(), many.json()};
}

void run(const Options& options) {
  const std::string libraries = fmt::format("ngtcp2 {}, GnuTLS {}, {}", ngtcp2_version(0)->version_str,
                                            gnutls_check_version(nullptr), OpenSSL_version(OPENSSL_VERSION));
  if (!options.json) fmt::print("{}\n", libraries);
  JsonObject report;
  report.add("libraries", libraries);
  report.add("pairs", options.pairs).add("seconds", options.seconds).add("peers", options.peers);
  const auto wants = [&](const char* part) {
    return options.parts.empty() || std::ranges::find(options.parts, part) != options.parts.end();
  };
  for (const auto& [name, type] : kKeyTypes) {
    if (!options.keys.empty() && std::ranges::find(options.keys, name) == options.keys.end()) continue;
    if (!options.json) fmt::print("{}, mutual authentication, {} pairs\n", name, options.pairs);
    const Identities identities = make_identities(type);
    std::vector<std::string> rows;
    if (wants("rate")) rows = compare_rates(options, identities);
    if (wants("cold")) std::ranges::move(compare_cold_peers(options, identities), std::back_inserter(rows));
    std::string list;
    for (const std::string& row : rows) list += (list.empty() ? "" : ", ") + row;
    report.add_text(name, '[' + list + ']');
  }
  if (options.json) fmt::print("{}\n", report.text());
}

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  weir::bench::Options options;
  CLI::App app("Handshakes per second and time to the first reply, next to TLS 1.3 over TCP by OpenSSL");
  app.add_option("--pairs", options.pairs, "Pairs of turns per comparison")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Length of one turn of a rate, in CPU time")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--core", options.core, "CPU for the rates (default: any)")->check(CLI::Range(0, 4095));
  app.add_option("--peers", options.peers, "Cold peers at once")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--key", options.keys, "Only this type of key; may be repeated")
      ->check(CLI::IsMember({"ed25519", "p256"}));
  app.add_option("--part", options.parts, "Only this part; may be repeated")->check(CLI::IsMember({"rate", "cold"}));
  app.add_flag("--json", options.json, "Print one JSON object and nothing else");
  app.add_flag("--quick", options.quick, "3 pairs of 0.2 s");
  CLI11_PARSE(app, argument_count, arguments);
  if (options.quick) options.pairs = 3, options.seconds = 0.2, options.cold_samples = 5;
  weir::bench::run(options);
}
