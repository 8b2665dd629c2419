#include "metrics/gauges_collectable.h"

#include <cstdint>
#include <optional>

#include "metrics/board.h"
#include "metrics/process.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"

namespace tokend::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Label = ClientMetric::Label;

// Families as they are built. A value that is not known is absent, never zero.
class Families {
 public:
  void Add(const std::string& name, const std::string& help, double value,
           std::vector<Label> labels = {}, MetricType type = MetricType::Gauge) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({name, help, type, {}});
    }
    ClientMetric metric;
    metric.label = std::move(labels);
    if (type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    families_.back().metric.push_back(std::move(metric));
  }
  void Add(const std::string& name, const std::string& help, std::optional<double> value) {
    if (value.has_value()) Add(name, help, *value);
  }

  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  std::vector<MetricFamily> families_;
};

void AddPages(const Gauges& gauges, Families* out) {
  const Gauges::Pages& pages = gauges.pages;
  const auto add = [&](const char* state, int64_t count) {
    out->Add("tokend_kv_pages", "Pages of the KV cache by state; the states sum to all pages.",
             static_cast<double>(count), {{"state", state}});
  };
  add("free", pages.free);
  add("cached", pages.cached);
  add("private", pages.private_pages);
  add("shared", pages.shared);
  add("pinned", pages.pinned);
  add("quarantined", pages.quarantined);
  out->Add("tokend_kv_bytes", "Memory of the KV cache, used or not.",
           static_cast<double>(pages.total * gauges.page_bytes));
}

void AddCore(const Gauges& gauges, Families* out) {
  out->Add("tokend_ready", "1 once the model is loaded and warm.", gauges.ready ? 1.0 : 0.0);
  AddPages(gauges, out);
  out->Add("tokend_sessions", "Sessions.", static_cast<double>(gauges.sessions));
  out->Add("tokend_versions", "Versions kept of all sessions.",
           static_cast<double>(gauges.versions));
  out->Add("tokend_requests_running", "Turns that have started and not ended.",
           static_cast<double>(gauges.running));
  out->Add("tokend_requests_waiting", "Turns in the queue.", static_cast<double>(gauges.waiting));
  const auto memory = [&](const char* kind, int64_t bytes) {
    out->Add("tokend_device_memory_bytes", "Memory that the backend holds, by purpose.",
             static_cast<double>(bytes), {{"kind", kind}});
  };
  memory("weights", gauges.weight_bytes);
  memory("kv", gauges.pages.total * gauges.page_bytes);
  memory("workspace", gauges.workspace_bytes);
  out->Add("tokend_weights_huge_page_bytes", "Weights in huge pages.",
           static_cast<double>(gauges.huge_page_bytes));
  out->Add("tokend_saturated_activations_total", "Activations that did not fit f16 (CUDA).",
           static_cast<double>(gauges.saturated_activations), {}, MetricType::Counter);
}

// The names that every Prometheus client library gives these.
void AddProcess(const ProcessStats& process, Families* out) {
  if (process.cpu_seconds.has_value()) {
    out->Add("process_cpu_seconds_total", "User and system CPU time spent in seconds.",
             *process.cpu_seconds, {}, MetricType::Counter);
  }
  out->Add("process_resident_memory_bytes", "Resident memory size in bytes.",
           process.resident_bytes);
  out->Add("process_virtual_memory_bytes", "Virtual memory size in bytes.", process.virtual_bytes);
  out->Add("process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
           process.start_time_seconds);
  out->Add("process_open_fds", "Number of open file descriptors.", process.open_fds);
  out->Add("process_threads", "Threads of the process.", process.threads);
}

void AddBoard(const BoardStats& board, Families* out) {
  for (const Reading& reading : board.temperatures) {
    out->Add("tokend_board_temperature_celsius", "Temperature of a sensor of the board.",
             reading.value, {{"sensor", reading.sensor}});
  }
  for (const Reading& reading : board.powers) {
    out->Add("tokend_board_power_watts", "Power that a sensor of the board measures.",
             reading.value, {{"sensor", reading.sensor}});
  }
}

}  // namespace

std::vector<MetricFamily> GaugesCollectable::Collect() const {
  Families out;
  const Gauges gauges = snapshot_();
  out.Add(
      "tokend_build_info", "Constant 1; what is running.", 1,
      {{"build_type", build_.build_type}, {"device", gauges.device}, {"version", build_.version}});
  AddCore(gauges, &out);
  AddProcess(ReadProcessStats(), &out);
  AddBoard(ReadBoardStats(root_), &out);
  return out.Take();
}

}  // namespace tokend::metrics
