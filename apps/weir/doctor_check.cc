#include "apps/weir/doctor_check.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "apps/weir/command.h"
#include "apps/weir/format.h"
#include "apps/weir/process.h"
#include "crypto/aead.h"
#include "weir/config.h"

#if defined(__linux__) && !defined(UDP_SEGMENT)
#define UDP_SEGMENT 103
#endif
#if defined(__linux__) && !defined(UDP_GRO)
#define UDP_GRO 104
#endif

namespace weir::command {

namespace {

constexpr std::uint64_t kEnoughMaps = 65'530;       // Linux's own default
constexpr std::uint64_t kEnoughDescriptors = 1024;  // a pool takes a handful; the demo's hundred pools some hundreds
constexpr int kCoresWorthIsolating = 4;
constexpr double kSlowClock_ns = 100;

std::optional<std::string> first_line(const std::filesystem::path& root, const char* path) {
  std::ifstream file(root / path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::uint64_t> number_in(const std::filesystem::path& root, const char* path) {
  std::optional<std::string> line = first_line(root, path);
  if (!line || line->empty() || line->find_first_not_of("0123456789") != std::string::npos || line->size() > 18) {
    return std::nullopt;
  }
  return std::stoull(*line);
}

Check unknown(std::string name) { return {.name = std::move(name), .found = "this system does not say"}; }

// `may_pass`: this process gets what it asks for, whatever the setting says.
Check check_buffer(const std::filesystem::path& root, const char* direction, const char* setting, bool may_pass) {
  std::string name = fmt::format("{} buffer", direction);
  std::optional<std::uint64_t> limit = number_in(root, fmt::format("proc/sys/net/core/{}", setting).c_str());
  if (!limit) return unknown(name);
  std::uint64_t wanted = Config{}.socket_buffer_bytes;
  Check check{
      .name = name,
      .ok = *limit >= wanted || may_pass,
      .found = fmt::format("net.core.{} is {}; a pool asks for {}", setting, in_bytes(*limit), in_bytes(wanted))};
  if (*limit >= wanted) return check;
  if (may_pass) {
    // Who runs the doctor with sudo asks for a service that has no such right.
    check.found += fmt::format(", and this process may have it; one without CAP_NET_ADMIN gets {}", in_bytes(*limit));
    return check;
  }
  check.costs = std::strcmp(setting, "rmem_max") == 0
                    ? "bursts larger than that are dropped by the kernel and have to be sent again"
                    : "large bursts take more system calls to send";
  check.mend = fmt::format("sudo sysctl -w net.core.{}={}", setting, wanted);
  return check;
}

// The file has a line of headings.
bool swaps(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/swaps");
  std::string line;
  return std::getline(file, line) && std::getline(file, line) && !line.empty();
}

bool may_lock_anything(const std::filesystem::path& root) {
  constexpr int kIpcLock = 14;  // CAP_IPC_LOCK
  constexpr std::string_view kField = "CapEff:";
  std::ifstream file(root / "proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kField)) continue;
    return (std::strtoull(line.c_str() + kField.size(), nullptr, 16) >> kIpcLock & 1) != 0;
  }
  return false;
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::string("unlimited") : with_commas(static_cast<std::uint64_t>(limit));
}

// A loopback socket that lives for one check.
class ProbeSocket {
 public:
  ProbeSocket() : descriptor_(socket(AF_INET, SOCK_DGRAM, 0)) {}
  ProbeSocket(const ProbeSocket&) = delete;
  ProbeSocket& operator=(const ProbeSocket&) = delete;
  ~ProbeSocket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  bool accepts(int option, int value) const { return accepts(IPPROTO_UDP, option, value); }
  bool accepts(int level, int option, int value) const {
    return setsockopt(descriptor_, level, option, &value, sizeof value) == 0;
  }

 private:
  int descriptor_;
};

Check check_offload(const char* name, [[maybe_unused]] int option, [[maybe_unused]] int value, const char* costs,
                    const char* since) {
  Check check{.name = name};
#ifdef __linux__
  check.ok = ProbeSocket().accepts(option, value);
  check.found = check.ok ? "the kernel does it" : fmt::format("the kernel refused it: {}", std::strerror(errno));
  check.mend = fmt::format("uname -r   (Linux {} or newer has it; some sandboxes take it away)", since);
#else
  check.ok = false;
  check.found = "only Linux has it";
  check.mend = fmt::format("none here: it takes Linux {} or newer", since);
#endif
  check.costs = costs;
  if (check.ok) check.costs = check.mend = "";
  return check;
}

Check check_aes() {
  crypto::BackendInfo info = crypto::default_backend();
  Check check{.name = "AES", .ok = info.backend == crypto::Backend::ipsec_mb, .found = info.detail};
  if (!check.ok) {
    check.costs = "sealing a small packet takes some 300 ns instead of the 50 ns of intel-ipsec-mb";
#if defined(__x86_64__)
    check.mend = "sudo apt-get install libipsec-mb-dev   (then configure and build again)";
#else
    check.mend = "none here: intel-ipsec-mb is for x86";
#endif
  }
  return check;
}

Check check_cores() {
  int cores = usable_cores();
  Check check{.name = "cores", .ok = cores >= 2, .found = fmt::format("this process may use {}", cores)};
  if (!check.ok) {
    check.costs = "worker and application share one core: they take turns instead of working side by side";
    check.mend = "taskset -p $$   (shows which cores are allowed; give the machine or the container more)";
  }
  return check;
}

}  // namespace

bool may_force_socket_buffers() {
#if defined(SO_RCVBUFFORCE)
  return ProbeSocket().accepts(SOL_SOCKET, SO_RCVBUFFORCE, static_cast<int>(Config{}.socket_buffer_bytes));
#else
  return false;
#endif
}

std::vector<Check> check_socket_buffers(const std::filesystem::path& root, bool may_force) {
  return {check_buffer(root, "receive", "rmem_max", may_force), check_buffer(root, "send", "wmem_max", may_force)};
}

Check check_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return unknown("descriptors");
  Check check{.name = "descriptors",
              .ok = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= kEnoughDescriptors,
              .found = fmt::format("this process may open {}", limit_text(limit.rlim_cur))};
  if (!check.ok) {
    check.costs = "opening many pools in one process fails";
    check.mend =
        fmt::format("ulimit -n {}   (in a systemd unit: LimitNOFILE={})", kEnoughDescriptors, kEnoughDescriptors);
  }
  return check;
}

// Weir locks no memory itself, and where nothing is swapped out there is nothing to lock.
Check check_locked_memory(const std::filesystem::path& root) {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return unknown("locked memory");
  const Limits limits;
  const std::uint64_t wanted = limits.buffer_bytes + limits.large_request_bytes + limits.large_reply_bytes;
  const bool is_enough = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted;
  Check check{.name = "locked memory",
              .found = limit.rlim_cur == RLIM_INFINITY
                           ? std::string("this process may lock all it has")
                           : fmt::format("this process may lock {}; a pool's messages take up to {}",
                                         in_bytes(limit.rlim_cur), in_bytes(wanted))};
  if (is_enough) return check;
  if (!swaps(root)) {
    check.found += ", and nothing is swapped out here";
  } else if (may_lock_anything(root)) {
    check.found += ", but CAP_IPC_LOCK lets it lock all it has";
  } else {
    check.ok = false;
    check.costs =
        "the kernel may swap out what messages lie in, and no mlockall() prevents it: a call waits for a disk";
    check.mend = "ulimit -l unlimited   (in a systemd unit: LimitMEMLOCK=infinity; then mlockall() in the application)";
  }
  return check;
}

Check check_map_count(const std::filesystem::path& root) {
  std::optional<std::uint64_t> count = number_in(root, "proc/sys/vm/max_map_count");
  if (!count) return unknown("memory maps");
  Check check{.name = "memory maps",
              .ok = *count >= kEnoughMaps,
              .found = fmt::format("a process may have {}", with_commas(*count))};
  if (!check.ok) {
    check.costs = "a process with many buffers and threads can be refused memory";
    check.mend = fmt::format("sudo sysctl -w vm.max_map_count={}", kEnoughMaps);
  }
  return check;
}

Check check_huge_pages(const std::filesystem::path& root) {
  std::optional<std::string> line = first_line(root, "sys/kernel/mm/transparent_hugepage/enabled");
  std::optional<std::uint64_t> reserved = number_in(root, "proc/sys/vm/nr_hugepages");
  if (!line && !reserved) return unknown("huge pages");
  bool transparent = line && (line->contains("[always]") || line->contains("[madvise]"));
  Check check{.name = "huge pages",
              .ok = transparent || reserved.value_or(0) > 0,
              .found = fmt::format("transparent: {}; reserved: {}", line.value_or("not there"), reserved.value_or(0))};
  if (!check.ok) {
    check.costs = "more address translations per packet, some percent at high rates";
    check.mend = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
  }
  return check;
}

Check check_isolation(const std::filesystem::path& root, int cores) {
  std::string isolated = first_line(root, "sys/devices/system/cpu/isolated").value_or("");
  Check check{.name = "isolated cores"};
  if (!isolated.empty()) {
    check.found = fmt::format("cores {}", isolated);
  } else if (cores < kCoresWorthIsolating) {
    check.found = fmt::format("none, and {} cores are too few to set some apart", cores);
  } else {
    check.ok = false;
    check.found = "none";
    check.costs = "other work and timer ticks interrupt workers: the slowest calls take longer, the rate stays";
    check.mend = fmt::format(
        "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&isolcpus={0} nohz_full={0} rcu_nocbs={0} /' /etc/default/grub && "
        "sudo update-grub   (then reboot, and give that core to a worker)",
        cores - 1);
  }
  return check;
}

Check check_clock_source(const std::filesystem::path& root) {
  std::optional<std::string> source =
      first_line(root, "sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (!source) return unknown("clock source");
  // These are read without entering the kernel.
  static constexpr const char* kFast[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"};
  bool fast = std::ranges::any_of(kFast, [&](const char* name) { return *source == name; });

  constexpr int kReads = 1000;
  double lowest_ns = std::numeric_limits<double>::max();  // of a few tries, so that an interruption does not count
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::int64_t before = now_ns();
    for (int i = 0; i < kReads; ++i) (void)now_ns();
    lowest_ns = std::min(lowest_ns, static_cast<double>(now_ns() - before) / kReads);
  }
  Check check{.name = "clock source",
              .ok = fast || lowest_ns <= kSlowClock_ns,
              .found = fmt::format("{}, {:.0f} ns a reading", *source, lowest_ns)};
  if (!check.ok) {
    check.costs = "a worker reads the clock in every turn, here with a system call";
    check.mend = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource";
  }
  return check;
}

std::vector<Check> check_machine(const std::filesystem::path& root) {
  std::vector<Check> checks = check_socket_buffers(root, may_force_socket_buffers());
#ifdef __linux__
  constexpr int kSegment = UDP_SEGMENT;
  constexpr int kGro = UDP_GRO;
#else
  constexpr int kSegment = 0;
  constexpr int kGro = 0;
#endif
  checks.push_back(check_offload("send offload (GSO)", kSegment, 1472,
                                 "each packet is sent on its own: two to three times the CPU per byte", "4.18"));
  checks.push_back(check_offload("receive offload (GRO)", kGro, 1,
                                 "each packet is received on its own: about twice the CPU per byte", "5.0"));
  checks.push_back(check_aes());
  checks.push_back(check_map_count(root));
  checks.push_back(check_descriptors());
  checks.push_back(check_locked_memory(root));
  checks.push_back(check_huge_pages(root));
  checks.push_back(check_isolation(root, usable_cores()));
  checks.push_back(check_clock_source(root));
  checks.push_back(check_cores());
  return checks;
}

}  // namespace weir::command
