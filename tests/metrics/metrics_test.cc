#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "metrics/board.h"
#include "metrics/exposer.h"
#include "metrics/gauges_collectable.h"
#include "metrics/metrics_observer.h"
#include "metrics/process.h"
#include "prometheus/text_serializer.h"
#include "tests/metrics/scrape.h"

namespace tokend::metrics {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;

Gauges SomeGauges() {
  Gauges gauges;
  gauges.device = "cpu";
  gauges.ready = true;
  gauges.pages = {100, 40, 30, 15, 10, 4, 1};
  gauges.page_bytes = 1000;
  gauges.sessions = 3;
  gauges.versions = 9;
  gauges.running = 2;
  gauges.waiting = 5;
  gauges.weight_bytes = 7;
  gauges.saturated_activations = 11;
  return gauges;
}

TEST(Observer, CountsEachEventOnce) {
  MetricsObserver observer;
  observer.OnPrompt(10, 5);
  observer.OnGeneratedTokens(3);
  base::StepReport step;
  step.duration = absl::Milliseconds(30);
  step.prefill = absl::Milliseconds(20);
  step.decode = absl::Milliseconds(10);
  step.prefill_tokens = 100;
  step.decode_tokens = 4;
  observer.OnStep(step);
  observer.OnFirstToken(absl::Milliseconds(15));
  observer.OnInterToken(absl::Milliseconds(7));
  observer.OnQueue(absl::Milliseconds(1));
  observer.OnRequestEnd("stop", absl::Seconds(2));
  observer.OnRequestEnd("version_mismatch", absl::Seconds(1));
  observer.OnSessionOp(base::SessionOp::kFork);
  observer.OnSessionOp(base::SessionOp::kDrop);
  observer.OnVersionConflict();
  observer.OnPageCopies(2);
  observer.OnEvictedPages(base::EvictionCause::kQuota, 6);
  observer.OnPrefixQuery(20, 12);
  observer.OnRecomputedTokens(8);

  const Samples samples = Scrape({observer.registry().get()});
  EXPECT_EQ(samples.at("tokend_prompt_tokens_total{source=\"computed\"}"), 10);
  EXPECT_EQ(samples.at("tokend_prompt_tokens_total{source=\"cached\"}"), 5);
  EXPECT_EQ(samples.at("tokend_generated_tokens_total"), 3);
  EXPECT_DOUBLE_EQ(samples.at("tokend_prefill_seconds_total"), 0.02);
  EXPECT_DOUBLE_EQ(samples.at("tokend_decode_seconds_total"), 0.01);
  EXPECT_EQ(samples.at("tokend_step_tokens_sum"), 104);
  EXPECT_DOUBLE_EQ(samples.at("tokend_step_seconds_sum"), 0.03);
  EXPECT_EQ(samples.at("tokend_time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(samples.at("tokend_time_to_first_token_seconds_bucket{le=\"0.01\"}"), 0);
  EXPECT_EQ(samples.at("tokend_time_to_first_token_seconds_bucket{le=\"0.02\"}"), 1);
  EXPECT_EQ(samples.at("tokend_inter_token_seconds_bucket{le=\"0.01\"}"), 1);
  EXPECT_EQ(samples.at("tokend_queue_seconds_count"), 1);
  EXPECT_EQ(samples.at("tokend_requests_total{reason=\"stop\"}"), 1);
  EXPECT_EQ(samples.at("tokend_requests_total{reason=\"version_mismatch\"}"), 1);
  EXPECT_EQ(samples.at("tokend_requests_total{reason=\"cancelled\"}"), 0);
  EXPECT_EQ(samples.at("tokend_request_seconds_count"), 2);
  EXPECT_EQ(samples.at("tokend_session_operations_total{op=\"fork\"}"), 1);
  EXPECT_EQ(samples.at("tokend_session_operations_total{op=\"drop\"}"), 1);
  EXPECT_EQ(samples.at("tokend_session_operations_total{op=\"create\"}"), 0);
  EXPECT_EQ(samples.at("tokend_version_conflicts_total"), 1);
  EXPECT_EQ(samples.at("tokend_kv_page_copies_total"), 2);
  EXPECT_EQ(samples.at("tokend_kv_evicted_pages_total{cause=\"quota\"}"), 6);
  EXPECT_EQ(samples.at("tokend_prefix_query_tokens_total"), 20);
  EXPECT_EQ(samples.at("tokend_prefix_hit_tokens_total"), 12);
  EXPECT_EQ(samples.at("tokend_recomputed_tokens_total"), 8);
}

TEST(Gauges, ComeFromOneSnapshot) {
  int snapshots = 0;
  const GaugesCollectable collectable({"1.2.3", "release"}, [&] {
    ++snapshots;
    return SomeGauges();
  });
  const Samples samples = Scrape({&collectable});
  EXPECT_EQ(snapshots, 1);
  double sum = 0;
  for (const char* state : {"free", "cached", "private", "shared", "pinned", "quarantined"}) {
    sum += samples.at(absl::StrCat("tokend_kv_pages{state=\"", state, "\"}"));
  }
  EXPECT_EQ(sum, 100);
  EXPECT_EQ(samples.at("tokend_kv_bytes"), 100000);
  EXPECT_EQ(samples.at("tokend_requests_running"), 2);
  EXPECT_EQ(samples.at("tokend_requests_waiting"), 5);
  EXPECT_EQ(samples.at("tokend_sessions"), 3);
  EXPECT_EQ(samples.at("tokend_versions"), 9);
  EXPECT_EQ(samples.at("tokend_saturated_activations_total"), 11);
  EXPECT_EQ(samples.at("tokend_ready"), 1);
  EXPECT_EQ(
      samples.at("tokend_build_info{build_type=\"release\",device=\"cpu\",version=\"1.2.3\"}"), 1);
}

// User-mode emulation fills /proc/self/stat with zeros; every process has a thread.
bool KernelCountsThreads() {
  std::ifstream stat("/proc/self/stat");
  std::string line, word;
  std::getline(stat, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  for (int number = 3; number <= 20; ++number) fields >> word;
  return word != "0";
}

TEST(Process, IsThisOne) {
  if (!KernelCountsThreads()) GTEST_SKIP() << "emulated: /proc/self/stat holds zeros";
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GT(stats.resident_bytes.value(), 1 << 20);
  EXPECT_GT(stats.virtual_bytes.value(), stats.resident_bytes.value());
  EXPECT_GE(stats.cpu_seconds.value(), 0);
  EXPECT_GE(stats.threads.value(), 1);
  EXPECT_GE(stats.open_fds.value(), 3);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(stats.start_time_seconds.value(), now + 2);
  EXPECT_GT(stats.start_time_seconds.value(), now - 7 * 86400);
}

class Board : public ::testing::Test {
 protected:
  Board() : root_(::testing::TempDir() + "/tokend-board-XXXXXX") {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
  }
  ~Board() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::map<std::string, double> Values(const std::vector<Reading>& readings) {
    std::map<std::string, double> out;
    for (const Reading& reading : readings) {
      EXPECT_TRUE(out.emplace(reading.sensor, reading.value).second) << reading.sensor;
    }
    return out;
  }
  std::string root_;
};

TEST_F(Board, WithoutSensorsIsEmpty) {
  const BoardStats stats = ReadBoardStats(root_);
  EXPECT_THAT(stats.temperatures, IsEmpty());
  EXPECT_THAT(stats.powers, IsEmpty());
}

TEST_F(Board, ReadsZonesAndHwmon) {
  const std::string thermal = "sys/class/thermal/";
  Write(thermal + "thermal_zone0/type", "cpu-thermal");
  Write(thermal + "thermal_zone0/temp", "45500");
  Write(thermal + "thermal_zone1/type", "cpu-thermal");
  Write(thermal + "thermal_zone1/temp", "46000");
  Write(thermal + "thermal_zone2/type", "broken");
  Write(thermal + "thermal_zone2/temp", "N/A");
  Write(thermal + "cooling_device0/type", "fan");
  const std::string ina = "sys/class/hwmon/hwmon0/";
  Write(ina + "name", "ina3221");
  Write(ina + "in1_label", "VDD_IN");
  Write(ina + "in1_input", "5000");
  Write(ina + "curr1_input", "1200");
  const std::string other = "sys/class/hwmon/hwmon1/";
  Write(other + "name", "acpi");
  Write(other + "power1_average", "12500000");
  Write(other + "temp1_input", "-3000");
  const BoardStats stats = ReadBoardStats(root_);
  const std::map<std::string, double> temperatures = {
      {"acpi/temp1", -3}, {"cpu-thermal", 45.5}, {"cpu-thermal-2", 46}};
  EXPECT_EQ(Values(stats.temperatures), temperatures);
  const std::map<std::string, double> powers = {{"acpi/power1", 12.5}, {"ina3221/VDD_IN", 6}};
  EXPECT_EQ(Values(stats.powers), powers);
  // And in a scrape, where a board without sensors has no such family.
  const Samples samples =
      Scrape({std::make_unique<GaugesCollectable>(BuildInfo{}, SomeGauges, root_).get()});
  EXPECT_EQ(samples.at("tokend_board_temperature_celsius{sensor=\"cpu-thermal\"}"), 45.5);
  EXPECT_EQ(samples.at("tokend_board_power_watts{sensor=\"ina3221/VDD_IN\"}"), 6);
  std::filesystem::remove_all(root_ + "/sys");
  EXPECT_THAT(
      ScrapeText({std::make_unique<GaugesCollectable>(BuildInfo{}, SomeGauges, root_).get()}),
      Not(HasSubstr("tokend_board")));
}

// --- Over HTTP. ---

// A connection to the port that has sent `text`.
class Connection {
 public:
  Connection(int port, const std::string& text) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const timeval timeout = {20, 0};
    EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)), 0);
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  ~Connection() { close(fd_); }
  std::string ReadAll() {
    std::string out;
    char buffer[4096];
    for (ssize_t size; (size = read(fd_, buffer, sizeof(buffer))) > 0;) {
      out.append(buffer, static_cast<size_t>(size));
    }
    return out;
  }

 private:
  const int fd_;
};

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

TEST(ExposerTest, ServesDespiteHalfOpenConnections) {
  auto exposer = Exposer::Create("127.0.0.1", 0);
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  EXPECT_GT((*exposer)->port(), 0);
  const MetricsObserver observer;
  (*exposer)->Add(observer.registry());
  (*exposer)->Add(std::make_shared<GaugesCollectable>(BuildInfo{}, SomeGauges));
  Connection silent((*exposer)->port(), "");
  Connection half((*exposer)->port(), "GET /metrics HTTP/1.1\r\nHost:");
  Connection scrape((*exposer)->port(), kGet);
  const std::string text = scrape.ReadAll();
  EXPECT_THAT(text, HasSubstr("200 OK"));
  EXPECT_THAT(text, HasSubstr("tokend_generated_tokens_total 0"));
  EXPECT_THAT(text, HasSubstr("tokend_kv_pages{state=\"free\"} 40"));
}

TEST(ExposerTest, NamesAnAddressThatItCannotBind) {
  const auto first = Exposer::Create("localhost", 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Exposer::Create("127.0.0.1", (*first)->port());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(absl::StrCat("127.0.0.1:", (*first)->port())),
            absl::string_view::npos);
  const auto nowhere = Exposer::Create("no.such.host.invalid", 0);
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(nowhere.status().message().find("no.such.host.invalid"), absl::string_view::npos);
}

}  // namespace
}  // namespace tokend::metrics
