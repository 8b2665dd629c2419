// What the machine has, as far as this process may use it.
#ifndef TOKEND_SERVICE_SYSTEM_INFO_H_
#define TOKEND_SERVICE_SYSTEM_INFO_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tokend::service {

// Cores of the CPUs that this process may run on, each counted once however many
// threads it has; no more than the control group's quota. At least 1.
int PhysicalCores();

// MemAvailable of /proc/meminfo, or what the control group has left, if less.
// `root` stands in for "/" in tests. Negative: unknown.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_SYSTEM_INFO_H_
