#include "service/system_info.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tokend::service {
namespace {

// Empty if it cannot be read.
std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Calls `visit` with the folder of this process's control group (version 2) and
// of each that holds it.
void ForEachControlGroup(const std::string& root,
                         const std::function<void(const std::string&)>& visit) {
  std::string group;
  for (absl::string_view line : absl::StrSplit(ReadFile(root + "/proc/self/cgroup"), '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) group = std::string(absl::StripAsciiWhitespace(line));
  }
  while (true) {
    if (group == "/") group.clear();
    visit(absl::StrCat(root, "/sys/fs/cgroup", group));
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

int64_t MemAvailable(const std::string& root) {
  for (absl::string_view line : absl::StrSplit(ReadFile(root + "/proc/meminfo"), '\n')) {
    if (!absl::ConsumePrefix(&line, "MemAvailable:")) continue;
    int64_t kib = 0;
    absl::ConsumeSuffix(&line, "kB");
    if (absl::SimpleAtoi(line, &kib)) return kib * 1024;
  }
  return -1;
}

// CPUs' worth of time that the control groups allow.
double CpuQuota() {
  double quota = 1e9;
  ForEachControlGroup("", [&](const std::string& folder) {
    const std::vector<std::string> parts = absl::StrSplit(ReadFile(folder + "/cpu.max"), ' ');
    double used = 0;
    double period = 0;
    if (parts.size() == 2 && absl::SimpleAtod(parts[0], &used) &&
        absl::SimpleAtod(parts[1], &period) && period > 0) {
      quota = std::min(quota, used / period);
    }
  });
  return quota;
}

}  // namespace

int PhysicalCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string siblings = ReadFile(
        absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    cores.insert(siblings.empty() ? absl::StrCat("cpu", cpu) : siblings);
  }
  const int quota = static_cast<int>(std::min(CpuQuota() + 0.5, 1024.0));
  return std::max(1, std::min(static_cast<int>(cores.size()), quota));
}

int64_t AvailableMemoryBytes(const std::string& root) {
  int64_t available = MemAvailable(root);
  ForEachControlGroup(root, [&](const std::string& folder) {
    int64_t most = 0;
    int64_t used = 0;
    // Pages of files that nobody needs count as used: the system takes them back.
    int64_t inactive = 0;
    if (!absl::SimpleAtoi(ReadFile(folder + "/memory.max"), &most) ||
        !absl::SimpleAtoi(ReadFile(folder + "/memory.current"), &used)) {
      return;
    }
    for (absl::string_view line : absl::StrSplit(ReadFile(folder + "/memory.stat"), '\n')) {
      if (absl::ConsumePrefix(&line, "inactive_file ")) (void)absl::SimpleAtoi(line, &inactive);
    }
    const int64_t left = std::max<int64_t>(0, most - (used - inactive));
    available = available < 0 ? left : std::min(available, left);
  });
  return available;
}

}  // namespace tokend::service
