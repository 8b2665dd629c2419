// What a run of a test sets from outside: schedules, and barriers to leave out.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/base/check.h"
#include "tests/simt/machine.h"

namespace tokend::simt {
namespace {

std::vector<std::string> Words(const char* variable) {
  std::vector<std::string> words;
  const char* value = std::getenv(variable);
  std::istringstream stream(value != nullptr ? value : "");
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

Order ParseOrder(const std::string& word) {
  if (word == "descending") return Order::kDescending;
  if (word == "interleaved") return Order::kInterleaved;
  TOKEND_CHECK(word == "ascending");
  return Order::kAscending;
}

}  // namespace

Schedule ScheduleFromEnvironment() {
  Schedule schedule;
  for (const std::string& word : Words("TOKEND_SIMT_SCHEDULE")) {
    const size_t equals = word.find('=');
    TOKEND_CHECK(equals != std::string::npos);
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (key == "warps") {
      schedule.warps = ParseOrder(value);
    } else if (key == "blocks") {
      schedule.blocks = ParseOrder(value);
    } else if (key == "copies") {
      TOKEND_CHECK(value == "early" || value == "late");
      schedule.late_copies = value == "late";
    } else if (key == "streams") {
      TOKEND_CHECK(value == "early" || value == "late");
      schedule.late_streams = value == "late";
    } else {
      TOKEND_CHECK(key == "mma" && (value == "one" || value == "split"));
      schedule.split_mma_sums = value == "split";
    }
  }
  return schedule;
}

Barriers::Barriers() {
  const char* path = std::getenv("TOKEND_SIMT_RECORD");
  record_to_ = path != nullptr ? path : "";
  Drop(Words("TOKEND_SIMT_DROP"));
}

void Barriers::Drop(const std::vector<std::string>& sites) {
  dropped_ = {sites.begin(), sites.end()};
  watched_ = !record_to_.empty() || !dropped_.empty();
}

bool Barriers::Watch(const char* kind, Site site) {
  const std::string where = ToString(site).text;
  if (!record_to_.empty() && reached_.insert(std::string(kind) + " " + where).second) {
    std::ofstream(record_to_, std::ios::app) << kind << ' ' << where << '\n';
  }
  return dropped_.count(where) == 0;
}

}  // namespace tokend::simt
