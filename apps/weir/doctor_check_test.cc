#include "apps/weir/doctor_check.h"

#include <gtest/gtest.h>
#include <stdlib.h>

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
  write("proc/sys/net/core/wmem_max", "8388608");
  auto checks = check_socket_buffers(root_);
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_FALSE(checks[0].ok);
  EXPECT_EQ(checks[0].mend, "sudo sysctl -w net.core.rmem_max=8388608");
  EXPECT_FALSE(checks[0].costs.empty());
  EXPECT_TRUE(checks[1].ok);
  EXPECT_TRUE(checks[1].mend.empty());
}

TEST_F(DoctorCheck, TakesNoOffenceAtWhatTheSystemDoesNotSay) {
  for (const Check& check : check_machine(root_)) {
    EXPECT_FALSE(check.name.empty());
    EXPECT_FALSE(check.found.empty()) << check.name;
    if (!check.ok) {
      EXPECT_FALSE(check.costs.empty()) << check.name;
    }
  }
  EXPECT_TRUE(check_map_count(root_).ok);
  EXPECT_TRUE(check_huge_pages(root_).ok);
}

TEST_F(DoctorCheck, TakesNoOffenceAtNonsense) {
  write("proc/sys/vm/max_map_count", "many");
  write("proc/sys/net/core/rmem_max", "99999999999999999999999999");
  EXPECT_TRUE(check_map_count(root_).ok);
  EXPECT_TRUE(check_socket_buffers(root_)[0].ok);
}

TEST_F(DoctorCheck, WantsEnoughMemoryMaps) {
  write("proc/sys/vm/max_map_count", "1000");
  EXPECT_FALSE(check_map_count(root_).ok);
  write("proc/sys/vm/max_map_count", "65530");
  EXPECT_TRUE(check_map_count(root_).ok);
}

TEST_F(DoctorCheck, WantsHugePagesOfEitherKind) {
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  write("proc/sys/vm/nr_hugepages", "0");
  EXPECT_FALSE(check_huge_pages(root_).ok);
  write("proc/sys/vm/nr_hugepages", "64");
  EXPECT_TRUE(check_huge_pages(root_).ok);
  write("proc/sys/vm/nr_hugepages", "0");
  write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  EXPECT_TRUE(check_huge_pages(root_).ok);
}

TEST_F(DoctorCheck, AsksForIsolatedCoresOnlyWhereThereAreEnough) {
  write("sys/devices/system/cpu/isolated", "");
  EXPECT_TRUE(check_isolation(root_, 2).ok);
  EXPECT_FALSE(check_isolation(root_, 16).ok);
  write("sys/devices/system/cpu/isolated", "12-15");
  EXPECT_TRUE(check_isolation(root_, 16).ok);
}

TEST_F(DoctorCheck, KnowsClocksThatNeedNoSystemCall) {
  write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc");
  EXPECT_TRUE(check_clock_source(root_).ok);
}

}  // namespace
}  // namespace weir::command
