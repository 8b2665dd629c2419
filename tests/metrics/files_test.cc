// The alert rules and the dashboard, against promtool and against what a scrape
// really holds.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "metrics/gauges_collectable.h"
#include "metrics/metrics_observer.h"
#include "tests/metrics/scrape.h"

namespace tokend::metrics {
namespace {

constexpr char kRules[] = "metrics/alerts.yml";
constexpr char kDashboard[] = "metrics/dashboard.json";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Everything that tokend can export, on a board with sensors.
std::string FullScrape() {
  MetricsObserver observer;
  observer.OnRequestEnd("stop", absl::Seconds(1));
  const GaugesCollectable gauges({"1.2.3", "release"}, [] { return Gauges(); });
  return ScrapeText({observer.registry().get(), &gauges});
}

struct Ran {
  int code = -1;
  std::string output;
};

Ran RunCommand(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Ran ran;
  char buffer[512];
  while (pipe != nullptr && fgets(buffer, sizeof(buffer), pipe) != nullptr) ran.output += buffer;
  ran.code = pipe == nullptr ? -1 : pclose(pipe);
  return ran;
}

// From Debian's package prometheus.
const char* Promtool() { return std::getenv("TOKEND_PROMTOOL"); }

TEST(Promtool, AcceptsTheScrape) {
  if (Promtool() == nullptr) GTEST_SKIP() << "TOKEND_PROMTOOL is not set";
  const std::string path = ::testing::TempDir() + "/tokend-scrape.txt";
  std::ofstream(path) << FullScrape();
  const Ran ran = RunCommand(std::string(Promtool()) + " check metrics < " + path);
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(ran.output, "");
}

TEST(Promtool, AcceptsTheRules) {
  if (Promtool() == nullptr) GTEST_SKIP() << "TOKEND_PROMTOOL is not set";
  const Ran ran = RunCommand(std::string(Promtool()) + " check rules " + kRules);
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, ::testing::HasSubstr("SUCCESS"));
}

// A metric that is renamed must be renamed there too.
TEST(Files, NameOnlyMetricsThatExist) {
  const std::string scrape = FullScrape();
  std::set<std::string> names = {"tokend_board_temperature_celsius", "tokend_board_power_watts"};
  const std::regex sample("^([a-z_]+)[ {]", std::regex::multiline);
  for (std::sregex_iterator it(scrape.begin(), scrape.end(), sample), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  ASSERT_GT(names.size(), 40u);
  for (const char* path : {kRules, kDashboard}) {
    const std::string text = ReadFile(path);
    const std::regex used("\\b(?:tokend|process)_[a-z_]+");
    int count = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), used), end; it != end; ++it, ++count) {
      EXPECT_EQ(names.count(it->str()), 1u) << path << ": " << it->str();
    }
    EXPECT_GT(count, 5) << path;
  }
}

}  // namespace
}  // namespace tokend::metrics
