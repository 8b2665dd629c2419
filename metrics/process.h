#ifndef TOKEND_METRICS_PROCESS_H_
#define TOKEND_METRICS_PROCESS_H_

#include <optional>

namespace tokend::metrics {

// Of this process, from /proc. Absent: not to be had.
struct ProcessStats {
  std::optional<double> cpu_seconds;
  std::optional<double> resident_bytes;
  std::optional<double> virtual_bytes;
  std::optional<double> start_time_seconds;  // since the epoch
  std::optional<double> open_fds;
  std::optional<double> threads;
};

ProcessStats ReadProcessStats();

}  // namespace tokend::metrics

#endif  // TOKEND_METRICS_PROCESS_H_
