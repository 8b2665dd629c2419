#ifndef TOKEND_METRICS_GAUGES_H_
#define TOKEND_METRICS_GAUGES_H_

#include <cstdint>
#include <string>

namespace tokend::metrics {

// What is true at one moment. All of it comes from one snapshot of the core, so
// that the page states of a scrape sum up to `total`.
struct Gauges {
  struct Pages {
    int64_t total = 0;
    int64_t free = 0;
    int64_t cached = 0;
    int64_t private_pages = 0;
    int64_t shared = 0;
    int64_t pinned = 0;
    int64_t quarantined = 0;
  };
  std::string device;  // "cpu" or "cuda", a label of tokend_build_info
  bool ready = false;  // the model is loaded and warm; the rest is 0 before
  Pages pages;
  int64_t page_bytes = 0;
  int64_t sessions = 0;
  int64_t versions = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t weight_bytes = 0;     // as the backend holds them
  int64_t workspace_bytes = 0;  // what else it holds, without the pages
  int64_t huge_page_bytes = 0;  // of the weights
  int64_t saturated_activations = 0;
};

// Labels of tokend_build_info.
struct BuildInfo {
  std::string version;  // "1.4.0"
  std::string build_type;
};

}  // namespace tokend::metrics

#endif  // TOKEND_METRICS_GAUGES_H_
