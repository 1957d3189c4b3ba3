#include "apps/weir/doctor_check.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace weir::command {
namespace {

// A made-up machine: files below a temporary folder that goes with the test.
class DoctorCheck : public testing::Test {
 protected:
  DoctorCheck() {
    std::string name = (std::filesystem::temp_directory_path() / "weir-doctor-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~DoctorCheck() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }

  std::filesystem::path root_;
};

TEST_F(DoctorCheck, NamesTheCommandForSmallSocketBuffers) {
  write("proc/sys/net/core/rmem_max", "212992");
  write("proc/sys/net/core/wmem_max", "16777216");
  auto checks = check_socket_buffers(root_, false);
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_FALSE(checks[0].ok);
  EXPECT_EQ(checks[0].mend, "sudo sysctl -w net.core.rmem_max=16777216");
  EXPECT_FALSE(checks[0].costs.empty());
  EXPECT_TRUE(checks[1].ok);
  EXPECT_TRUE(checks[1].mend.empty());
}

// The doctor may have been run with sudo, and then it has rights that the service has not.
TEST_F(DoctorCheck, SmallSocketBuffersAreNoTroubleForAProcessThatMayPassThemAndItSaysWhoMayNot) {
  write("proc/sys/net/core/rmem_max", "212992");
  write("proc/sys/net/core/wmem_max", "212992");
  for (const Check& check : check_socket_buffers(root_, true)) {
    EXPECT_TRUE(check.ok);
    EXPECT_NE(check.found.find("CAP_NET_ADMIN"), std::string::npos) << check.found;
    EXPECT_NE(check.found.find("one without CAP_NET_ADMIN gets 208.0 KiB"), std::string::npos) << check.found;
    EXPECT_EQ(check.costs + check.mend, "");
  }
  write("proc/sys/net/core/rmem_max", "16777216");
  EXPECT_EQ(check_socket_buffers(root_, true)[0].costs + check_socket_buffers(root_, true)[0].mend, "");
}

TEST_F(DoctorCheck, TakesNoOffenceAtWhatTheSystemDoesNotSay) {
  for (const Check& check : check_machine(root_)) {
    EXPECT_FALSE(check.name.empty());
    EXPECT_FALSE(check.found.empty()) << check.name;
    if (!check.ok) {
      EXPECT_FALSE(check.costs.empty()) << check.name;
      EXPECT_FALSE(check.mend.empty()) << check.name;
    }
  }
  EXPECT_TRUE(check_map_count(root_).ok);
  EXPECT_TRUE(check_huge_pages(root_).ok);
}

TEST_F(DoctorCheck, TakesNoOffenceAtNonsense) {
  write("proc/sys/vm/max_map_count", "many");
  write("proc/sys/net/core/rmem_max", "99999999999999999999999999");
  EXPECT_TRUE(check_map_count(root_).ok);
  EXPECT_TRUE(check_socket_buffers(root_, false)[0].ok);
}

// A limit of this process for as long as it lives; only the one that may be raised again.
class Limit {
 public:
  Limit(decltype(RLIMIT_NOFILE) resource, rlim_t value) : resource_(resource) {
    EXPECT_EQ(getrlimit(resource_, &before_), 0);
    const rlimit now{.rlim_cur = value, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &now), 0);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  ~Limit() { setrlimit(resource_, &before_); }

 private:
  decltype(RLIMIT_NOFILE) resource_;
  rlimit before_{};
};

void expect_trouble(const Check& check, const std::string& command) {
  EXPECT_FALSE(check.ok) << check.name;
  EXPECT_FALSE(check.costs.empty()) << check.name;
  EXPECT_TRUE(check.mend.starts_with(command)) << check.mend;
}

TEST_F(DoctorCheck, WantsEnoughDescriptors) {
  const Limit limit(RLIMIT_NOFILE, 64);
  expect_trouble(check_descriptors(), "ulimit -n 1024");
}

TEST_F(DoctorCheck, WantsMemoryThatCanBeLockedWhereSomethingIsSwappedOut) {
  const Limit limit(RLIMIT_MEMLOCK, 64 << 10);
  const std::string headings = "Filename\tType\tSize\tUsed\tPriority";
  write("proc/swaps", headings + "\n/dev/sda2 partition 1000000 0 -2");
  write("proc/self/status", "Name:\tweir\nCapEff:\t0000000000003fff");
  const Check check = check_locked_memory(root_);
  expect_trouble(check, "ulimit -l unlimited");
  EXPECT_NE(check.mend.find("LimitMEMLOCK=infinity"), std::string::npos) << check.mend;
  EXPECT_NE(check.found.find("may lock 64.0 KiB"), std::string::npos) << check.found;

  write("proc/self/status", "Name:\tweir\nCapEff:\t0000000000004000");
  EXPECT_TRUE(check_locked_memory(root_).ok) << "the limit does not hold for CAP_IPC_LOCK";
  write("proc/self/status", "Name:\tweir\nCapEff:\t0000000000000000");
  EXPECT_FALSE(check_locked_memory(root_).ok);
  write("proc/swaps", headings);
  EXPECT_TRUE(check_locked_memory(root_).ok);
  EXPECT_EQ(check_locked_memory(root_).costs + check_locked_memory(root_).mend, "");
}

TEST_F(DoctorCheck, WantsEnoughMemoryMaps) {
  write("proc/sys/vm/max_map_count", "1000");
  expect_trouble(check_map_count(root_), "sudo sysctl -w vm.max_map_count=");
  write("proc/sys/vm/max_map_count", "65530");
  EXPECT_TRUE(check_map_count(root_).ok);
}

TEST_F(DoctorCheck, WantsHugePagesOfEitherKind) {
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  write("proc/sys/vm/nr_hugepages", "0");
  expect_trouble(check_huge_pages(root_), "echo madvise");
  write("proc/sys/vm/nr_hugepages", "64");
  EXPECT_TRUE(check_huge_pages(root_).ok);
  write("proc/sys/vm/nr_hugepages", "0");
  write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  EXPECT_TRUE(check_huge_pages(root_).ok);
}

TEST_F(DoctorCheck, AsksForIsolatedCoresOnlyWhereThereAreEnough) {
  write("sys/devices/system/cpu/isolated", "");
  EXPECT_TRUE(check_isolation(root_, 2).ok);
  expect_trouble(check_isolation(root_, 16), "sudo sed");
  write("sys/devices/system/cpu/isolated", "12-15");
  EXPECT_TRUE(check_isolation(root_, 16).ok);
}

TEST_F(DoctorCheck, KnowsClocksThatNeedNoSystemCall) {
  write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc");
  EXPECT_TRUE(check_clock_source(root_).ok);
}

}  // namespace
}  // namespace weir::command
