#include "metrics/process.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tokend::metrics {
namespace {

// Fields of /proc/self/stat after the command, which ends with the last ')'; so
// field N of proc(5) is at N - 3.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  return absl::StrSplit(line.substr(end + 1), ' ', absl::SkipWhitespace());
}

std::optional<double> Field(const std::vector<std::string>& fields, size_t number) {
  double value = 0;
  if (number - 3 >= fields.size() || !absl::SimpleAtod(fields[number - 3], &value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view rest = line;
    double seconds = 0;
    if (absl::ConsumePrefix(&rest, "btime ") && absl::SimpleAtod(rest, &seconds)) return seconds;
  }
  return std::nullopt;
}

std::optional<double> OpenFds() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  if (error) return std::nullopt;
  return count;
}

}  // namespace

ProcessStats ReadProcessStats() {
  const std::vector<std::string> fields = StatFields();
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  ProcessStats out;
  const auto user = Field(fields, 14);
  const auto system = Field(fields, 15);
  if (user.has_value() && system.has_value()) out.cpu_seconds = (*user + *system) / ticks;
  out.threads = Field(fields, 20);
  const auto start = Field(fields, 22);
  const auto boot = BootTimeSeconds();
  if (start.has_value() && boot.has_value()) out.start_time_seconds = *boot + *start / ticks;
  out.virtual_bytes = Field(fields, 23);
  const auto pages = Field(fields, 24);
  if (pages.has_value()) {
    out.resident_bytes = *pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  }
  out.open_fds = OpenFds();
  return out;
}

}  // namespace tokend::metrics
