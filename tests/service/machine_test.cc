// Memory planning, what the machine has, exit codes, the log and the ports file.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/gguf/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/exit_code.h"
#include "service/log.h"
#include "service/memory_plan.h"
#include "service/ports_file.h"
#include "service/system_info.h"

namespace tokend::service {
namespace {

using ::testing::HasSubstr;

MemoryPlanInputs Inputs() {
  MemoryPlanInputs inputs;
  inputs.available_bytes = int64_t{8} << 30;
  inputs.held_bytes = int64_t{1} << 30;
  inputs.page_bytes = 4096;
  inputs.layers = 30;
  inputs.page_tokens = 16;
  inputs.context_tokens = 8192;
  inputs.max_running = 8;
  return inputs;
}

TEST(MemoryPlan, AllQuotasFitTogether) {
  const std::vector<PrincipalSettings> principals = {
      {"a", "", 60}, {"b", "", std::nullopt}, {"c", "", 40}};
  EXPECT_TRUE(CheckQuotas(principals, 100).ok());
  const absl::Status status = CheckQuotas(principals, 99);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().substr(0, 11), "principals:");
}

TEST(MemoryPlan, TakesNoMoreThanAllContextsNeed) {
  EXPECT_EQ(PlanPages(Inputs()).value(), 8 * 30 * (8192 / 16 + 1));
}

TEST(MemoryPlan, TakesHalfOfWhatIsLeft) {
  MemoryPlanInputs inputs = Inputs();
  inputs.available_bytes = (int64_t{1} << 30) + (64 << 20);
  EXPECT_EQ(PlanPages(inputs).value(), (32 << 20) / 4096);
}

TEST(MemoryPlan, TakesTheShareThatIsSet) {
  MemoryPlanInputs inputs = Inputs();
  inputs.available_bytes = (int64_t{1} << 30) + (64 << 20);
  inputs.default_share = 0.75;
  EXPECT_EQ(PlanPages(inputs).value(), (48 << 20) / 4096);
  inputs.share = 0.25;
  EXPECT_EQ(PlanPages(inputs).value(), (16 << 20) / 4096);
  // More than max_running need: what is free beside them is a cache.
  inputs = Inputs();
  inputs.available_bytes = int64_t{65} << 30;
  inputs.share = 1;
  EXPECT_EQ(PlanPages(inputs).value(), (int64_t{64} << 30) / 4096);
}

TEST(MemoryPlan, RefusesBeforeTaking) {
  MemoryPlanInputs inputs = Inputs();
  inputs.available_bytes = inputs.held_bytes + (1 << 20);
  EXPECT_EQ(PlanPages(inputs).status().code(), absl::StatusCode::kResourceExhausted);
  inputs.available_bytes = 0;
  EXPECT_EQ(PlanPages(inputs).status().code(), absl::StatusCode::kResourceExhausted);
  inputs = Inputs();
  inputs.kv_budget_bytes = 4096;
  EXPECT_EQ(PlanPages(inputs).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(PlanPages(inputs).status().message().find("kv_budget_bytes"), absl::string_view::npos);
  inputs.kv_budget_bytes = int64_t{7} << 30;
  EXPECT_EQ(PlanPages(inputs).value(), (int64_t{7} << 30) / 4096);
  inputs.kv_budget_bytes = (int64_t{7} << 30) + 1;
  EXPECT_EQ(PlanPages(inputs).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CheckWeightsFit(10, 9).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(CheckWeightsFit(10, 11).ok());
}

TEST(MemoryPlan, WithoutMeminfoTheBudgetCounts) {
  MemoryPlanInputs inputs = Inputs();
  inputs.available_bytes = -1;
  EXPECT_EQ(PlanPages(inputs).value(), 8 * 30 * (8192 / 16 + 1));
  inputs.kv_budget_bytes = int64_t{100} << 30;
  EXPECT_EQ(PlanPages(inputs).value(), (int64_t{100} << 30) / 4096);
  EXPECT_TRUE(CheckWeightsFit(INT64_MAX, -1).ok());
}

class Machine : public ::testing::Test {
 protected:
  Machine() : root_(::testing::TempDir() + "/tokend-machine-XXXXXX") {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
  }
  ~Machine() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root_;
};

TEST_F(Machine, MemoryIsTheLeastOfMeminfoAndControlGroups) {
  EXPECT_LT(AvailableMemoryBytes(root_), 0);
  Write("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable:     1000 kB\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1000 * 1024);
  Write("/proc/self/cgroup", "0::/system.slice/tokend.service\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1000 * 1024);
  const std::string slice = "/sys/fs/cgroup/system.slice";
  const std::string unit = slice + "/tokend.service";
  Write(unit + "/memory.max", "max\n");
  Write(unit + "/memory.current", "5\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1000 * 1024);
  // What the group's files hold in the page cache can be taken back.
  Write(unit + "/memory.max", "500000\n");
  Write(unit + "/memory.current", "100000\n");
  Write(unit + "/memory.stat", "anon 5\ninactive_file 40000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 440000);
  Write(slice + "/memory.max", "200000\n");
  Write(slice + "/memory.current", "250000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 0);
}

TEST_F(Machine, ThisOneHasMemoryAndCores) {
  EXPECT_GT(AvailableMemoryBytes(), 1 << 20);
  EXPECT_GE(PhysicalCores(), 1);
  EXPECT_LE(PhysicalCores(), 4096);
}

TEST(ExitCodes, ByCause) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kDone);
  EXPECT_EQ(ExitCodeOf(gguf::Damaged("f", 3, "x")), ExitCode::kBadModel);
  EXPECT_EQ(ExitCodeOf(gguf::Unsupported("f", "x")), ExitCode::kBadModel);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("x")), ExitCode::kBadConfig);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("x")), ExitCode::kBadConfig);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("x")), ExitCode::kFailed);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("x")), ExitCode::kFailed);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), ExitCode::kFailed);
}

TEST(LogLines, AreQuotedAsTheirFormatNeeds) {
  const std::vector<LogField> fields = {
      {"plain", "a/b"},      {"space", "a b"}, {"evil", "\"\n\x01\xff="},
      {"quote", "it's \\'"}, {"empty", ""},    {"count", 3},
      {"ratio", 1.5}};
  EXPECT_EQ(FormatLogLine(false, LogLevel::kInfo, "turn", fields),
            "level=info event=turn plain=a/b space=\"a b\" evil=\"\\\"\\n\\001\xef\xbf\xbd=\" "
            "quote=\"it's \\\\'\" empty=\"\" "
            "count=3 ratio=1.500");
  EXPECT_EQ(
      FormatLogLine(true, LogLevel::kError, "turn", {{"evil", "\"\n\x01\\\xff"}, {"count", 3}}),
      "\"level\":\"error\",\"event\":\"turn\",\"evil\":\"\\\"\\u000a\\u0001\\\\"
      "\xef\xbf\xbd\",\"count\":3");
}

TEST(PortsFile, IsRenamedIntoPlace) {
  const std::string path = ::testing::TempDir() + "/tokend-ports";
  std::filesystem::remove(path);
  const std::vector<Address> grpc = {ParseAddress("127.0.0.1:5").value(),
                                     ParseAddress("unix:/x").value()};
  ASSERT_TRUE(WritePortsFile(path, grpc, ParseAddress("[::1]:6").value()).ok());
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), "grpc=127.0.0.1:5\ngrpc=unix:/x\nmetrics=[::1]:6\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  const absl::Status failed = WritePortsFile("/does/not/exist/ports", grpc, std::nullopt);
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(failed.message().find("/does/not/exist/ports"), absl::string_view::npos);
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(WritePortsFile(path, grpc, std::nullopt).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(std::filesystem::is_fifo(path)) << "what was there is gone";
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tokend::service
