#ifndef TOKEND_TESTS_METRICS_SCRAPE_H_
#define TOKEND_TESTS_METRICS_SCRAPE_H_

#include <map>
#include <string>
#include <vector>

#include "prometheus/collectable.h"

namespace tokend::metrics {

// "name{label=\"value\"}" -> value.
using Samples = std::map<std::string, double>;

// What a scrape of these would return.
std::string ScrapeText(const std::vector<const prometheus::Collectable*>& collectables);
Samples Scrape(const std::vector<const prometheus::Collectable*>& collectables);

}  // namespace tokend::metrics

#endif  // TOKEND_TESTS_METRICS_SCRAPE_H_
