#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/bench/bench.h"

namespace tokend::bench {

void Report::Start(absl::string_view bench) {
  bench_ = std::string(bench);
  std::printf("%s\n", bench_.c_str());
}

void Report::Add(absl::string_view name, double value, absl::string_view unit) {
  results_.push_back({bench_, std::string(name), value, std::string(unit)});
  std::printf("  %-42s %12.4g %s\n", results_.back().name.c_str(), value,
              results_.back().unit.c_str());
  std::fflush(stdout);
}

absl::Status Report::WriteJson(const std::string& path) const {
  nlohmann::json list = nlohmann::json::array();
  for (const Result& result : results_) {
    list.push_back({{"bench", result.bench},
                    {"name", result.name},
                    {"value", result.value},
                    {"unit", result.unit}});
  }
  std::ofstream file(path);
  file << list.dump(1) << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

double SecondsPerCall(absl::FunctionRef<void()> call) {
  using Clock = std::chrono::steady_clock;
  constexpr double kSample = 0.004;
  constexpr double kTotal = 0.5;
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  call();
  std::vector<double> samples;
  const Clock::time_point begin = Clock::now();
  while (samples.size() < 5 || (seconds(Clock::now() - begin) < kTotal)) {
    const Clock::time_point start = Clock::now();
    double elapsed = 0;
    int calls = 0;
    do {
      call();
      ++calls;
      elapsed = seconds(Clock::now() - start);
    } while (elapsed < kSample);
    samples.push_back(elapsed / calls);
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 4];
}

}  // namespace tokend::bench
