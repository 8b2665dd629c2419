#include "metrics/board.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tokend::metrics {
namespace {

namespace fs = std::filesystem;

// First line, stripped; absent if it cannot be read.
std::optional<std::string> ReadLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(line));
}

std::optional<double> ReadNumber(const fs::path& path) {
  const auto line = ReadLine(path);
  double value = 0;
  if (!line.has_value() || !absl::SimpleAtod(*line, &value)) return std::nullopt;
  return value;
}

// Sorted, so that names do not move between scrapes.
std::vector<fs::path> List(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    out.push_back(it->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

class Readings {
 public:
  explicit Readings(std::vector<Reading>* out) : out_(out) {}

  // Two sensors of one name become "name" and "name-2".
  void Add(const std::string& name, double value) {
    std::string unique = name;
    for (int i = 2; !names_.insert(unique).second; ++i) unique = absl::StrCat(name, "-", i);
    out_->push_back({unique, value});
  }

 private:
  std::vector<Reading>* const out_;
  std::set<std::string> names_;
};

// "ina3221/VDD_IN", or "ina3221/in1" where `prefix` of the file has no label.
std::string SensorName(const fs::path& device, const std::string& prefix) {
  const std::string chip = ReadLine(device / "name").value_or(device.filename().string());
  const std::string label = ReadLine(device / absl::StrCat(prefix, "_label")).value_or(prefix);
  return absl::StrCat(chip, "/", label);
}

void ReadThermalZones(const fs::path& root, Readings* temperatures) {
  for (const fs::path& zone : List(root / "sys/class/thermal")) {
    if (!absl::StartsWith(zone.filename().string(), "thermal_zone")) continue;
    const auto millidegrees = ReadNumber(zone / "temp");
    if (!millidegrees.has_value()) continue;
    temperatures->Add(ReadLine(zone / "type").value_or(zone.filename().string()),
                      *millidegrees / 1e3);
  }
}

// power*_input and power*_average are in microwatts; boards with an INA3221 give
// in*_input (mV) and curr*_input (mA) of a channel.
void ReadHwmon(const fs::path& device, Readings* temperatures, Readings* powers) {
  for (const fs::path& file : List(device)) {
    const std::string name = file.filename().string();
    absl::string_view prefix = name;
    const bool input = absl::ConsumeSuffix(&prefix, "_input");
    if (!input && !absl::ConsumeSuffix(&prefix, "_average")) continue;
    const auto value = ReadNumber(file);
    if (!value.has_value()) continue;
    if (absl::StartsWith(prefix, "temp") && input) {
      temperatures->Add(SensorName(device, std::string(prefix)), *value / 1e3);
    } else if (absl::StartsWith(prefix, "power")) {
      powers->Add(SensorName(device, std::string(prefix)), *value / 1e6);
    } else if (absl::ConsumePrefix(&prefix, "curr") && input) {
      const std::string channel = absl::StrCat("in", prefix);
      const auto millivolts = ReadNumber(device / absl::StrCat(channel, "_input"));
      if (millivolts.has_value()) {
        powers->Add(SensorName(device, channel), *value * *millivolts / 1e6);
      }
    }
  }
}

}  // namespace

BoardStats ReadBoardStats(const std::string& root) {
  BoardStats out;
  Readings temperatures(&out.temperatures);
  Readings powers(&out.powers);
  const fs::path top = root.empty() ? "/" : root;
  ReadThermalZones(top, &temperatures);
  for (const fs::path& device : List(top / "sys/class/hwmon")) {
    ReadHwmon(device, &temperatures, &powers);
  }
  return out;
}

}  // namespace tokend::metrics
