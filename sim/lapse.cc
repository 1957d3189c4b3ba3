#include "sim/lapse.h"

#include <fmt/format.h>

#include <chrono>

namespace weir::sim {
namespace {

constexpr Duration kLongestUnused = std::chrono::seconds(4);  // before the end

}  // namespace

Lapse::Lapse(World& world, Checker& checker, const WorkloadShape& shape)
    : world_(world), checker_(checker), caller_(shape.lapsing.value()), end_(shape.lapses_at) {
  checker_.set_on_run([this](HostId, const CallRecord& record) { on_run(record); });
}

void Lapse::on_run(const CallRecord& record) {
  if (record.caller != caller_) return;
  last_run_ = world_.now();
  if (world_.now() < end_) return;
  const double late = static_cast<double>((world_.now() - end_).count()) * 1e-6;
  checker_.violation(
      fmt::format("{} ran {:.3f} ms after the end of its caller's certificate", Checker::describe(record), late));
}

void Lapse::check_end() {
  if (last_run_ + kLongestUnused < end_) checker_.violation("a certificate was of no use long before its end");
}

}  // namespace weir::sim
