#ifndef TOKEND_METRICS_BOARD_H_
#define TOKEND_METRICS_BOARD_H_

#include <string>
#include <vector>

namespace tokend::metrics {

struct Reading {
  std::string sensor;  // "cpu-thermal", "ina3221/VDD_IN"; unique
  double value = 0;
};

// What the board's sensors say: thermal zones and hwmon devices. Empty where there
// are none; a sensor that cannot be read is left out.
struct BoardStats {
  std::vector<Reading> temperatures;  // degrees Celsius
  std::vector<Reading> powers;        // watts
};

// `root` stands in for "/" in tests.
BoardStats ReadBoardStats(const std::string& root = "");

}  // namespace tokend::metrics

#endif  // TOKEND_METRICS_BOARD_H_
