#ifndef TOKEND_METRICS_EXPOSER_H_
#define TOKEND_METRICS_EXPOSER_H_

#include <netinet/in.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"

namespace tokend::metrics {

// Serves /metrics over HTTP.
class Exposer {
 public:
  // `host`: a name or an IPv4 address; `port` 0: the system picks. UNAVAILABLE, with the
  // address, if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<Exposer>> Create(const std::string& host, int port);

  ~Exposer();

  // Kept alive by the exposer.
  void Add(std::shared_ptr<prometheus::Collectable> collectable);

  int port() const { return port_; }

 private:
  Exposer(std::unique_ptr<prometheus::Exposer> exposer, in_addr address, int port)
      : exposer_(std::move(exposer)), address_(address), port_(port) {}

  std::vector<std::shared_ptr<prometheus::Collectable>> collectables_;
  std::unique_ptr<prometheus::Exposer> exposer_;  // stops before they go
  const in_addr address_;
  const int port_;
};

}  // namespace tokend::metrics

#endif  // TOKEND_METRICS_EXPOSER_H_
