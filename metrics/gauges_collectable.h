#ifndef TOKEND_METRICS_GAUGES_COLLECTABLE_H_
#define TOKEND_METRICS_GAUGES_COLLECTABLE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/gauges.h"
#include "prometheus/collectable.h"

namespace tokend::metrics {

// Every gauge of a scrape, from one call of `snapshot`. Thread-safe if that is.
class GaugesCollectable : public prometheus::Collectable {
 public:
  // `root` stands in for "/" in tests.
  GaugesCollectable(const BuildInfo& build, std::function<Gauges()> snapshot, std::string root = "")
      : build_(build), snapshot_(std::move(snapshot)), root_(std::move(root)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const BuildInfo build_;
  const std::function<Gauges()> snapshot_;
  const std::string root_;
};

}  // namespace tokend::metrics

#endif  // TOKEND_METRICS_GAUGES_COLLECTABLE_H_
