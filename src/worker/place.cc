#include "worker/place.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

// WEIR_PORTABLE_UDP leaves out what only Linux has, as other systems do.
#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
#define WEIR_HAS_AFFINITY 1
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#endif

namespace weir::worker {

namespace {

Error no_such_core(int core, long count) {
  return {Code::invalid_argument, "places names core " + std::to_string(core) + ", but this machine has cores 0 to " +
                                      std::to_string(count - 1)};
}

Error no_such_node(int node) {
  return {Code::invalid_argument,
          "places names NUMA node " + std::to_string(node) + ", which this machine does not have"};
}

}  // namespace

#if defined(WEIR_HAS_AFFINITY)
namespace {

constexpr int kMaxNodes = 64;

// The node's CPUs in the kernel's list form, "0-3,8"; empty if there is no such node.
std::string cores_of_node(int node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  std::string list;
  std::getline(file, list);
  return list;
}

void add_cores(const std::string& list, cpu_set_t& set) {
  std::size_t at = 0;
  while (at < list.size()) {
    std::size_t used = 0;
    const int first = std::stoi(list.substr(at), &used);
    at += used;
    int last = first;
    if (at < list.size() && list[at] == '-') {
      last = std::stoi(list.substr(at + 1), &used);
      at += used + 1;
    }
    for (int core = first; core <= last && core < CPU_SETSIZE; ++core) CPU_SET(core, &set);
    ++at;  // the comma
  }
}

}  // namespace

Result<void> validate(const WorkerPlace& place) {
  const long cores = sysconf(_SC_NPROCESSORS_CONF);
  if (place.core < -1 || place.core >= CPU_SETSIZE || place.core >= cores) {
    return std::unexpected(no_such_core(place.core, cores));
  }
  if (place.numa_node < -1 || (place.numa_node >= 0 && cores_of_node(place.numa_node).empty())) {
    return std::unexpected(no_such_node(place.numa_node));
  }
  return {};
}

Result<void> pin_this_thread(const WorkerPlace& place) {
  if (place.core < 0 && place.numa_node < 0) return {};
  cpu_set_t set;
  CPU_ZERO(&set);
  if (place.core >= 0) {
    CPU_SET(place.core, &set);
  } else {
    add_cores(cores_of_node(place.numa_node), set);
  }
  const int error = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  if (error == 0) return {};
  return std::unexpected(Error(Code::system, "the thread could not be pinned to core " + std::to_string(place.core) +
                                                 " or node " + std::to_string(place.numa_node) + ": " +
                                                 std::strerror(error)));
}

int node_of(const WorkerPlace& place) {
  if (place.core < 0) return place.numa_node;
  for (int node = 0; node < kMaxNodes; ++node) {
    cpu_set_t set;
    CPU_ZERO(&set);
    add_cores(cores_of_node(node), set);
    if (place.core < CPU_SETSIZE && CPU_ISSET(place.core, &set)) return node;
  }
  return -1;
}

void name_this_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

int usable_cores() {
  cpu_set_t set;
  // The process's own, not this thread's: a pinned worker still has neighbours on other cores.
  if (sched_getaffinity(getpid(), sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

#else

Result<void> validate(const WorkerPlace& place) {
  if (place.core < -1 || place.core >= usable_cores()) return std::unexpected(no_such_core(place.core, usable_cores()));
  if (place.numa_node < -1 || place.numa_node > 0) return std::unexpected(no_such_node(place.numa_node));
  return {};
}

Result<void> pin_this_thread(const WorkerPlace& place) {
  if (place.core < 0 && place.numa_node < 0) return {};
  return std::unexpected(Error(Code::system, "this system does not let a thread choose its core"));
}

int node_of(const WorkerPlace& place) { return place.core < 0 ? place.numa_node : -1; }

void name_this_thread(const char*) {}

int usable_cores() {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

#endif

bool is_crowded() {
  // Asked once per thread: the answer costs a system call, and a process that changes its affinity later only waits
  // a little less well.
  static thread_local const int cores = usable_cores();
  return active_threads.load(std::memory_order_relaxed) > cores;
}

}  // namespace weir::worker
