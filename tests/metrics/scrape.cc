#include "tests/metrics/scrape.h"

#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"

namespace tokend::metrics {

std::string ScrapeText(const std::vector<const prometheus::Collectable*>& collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto* collectable : collectables) {
    for (auto& family : collectable->Collect()) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

Samples Scrape(const std::vector<const prometheus::Collectable*>& collectables) {
  Samples out;
  const std::string text = ScrapeText(collectables);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
    EXPECT_TRUE(out.emplace(std::string(line.substr(0, space)), value).second) << line;
  }
  return out;
}

}  // namespace tokend::metrics
