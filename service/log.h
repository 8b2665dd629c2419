// The daemon's log: lines on stderr, key=value or JSON. Never a request's text.
#ifndef TOKEND_SERVICE_LOG_H_
#define TOKEND_SERVICE_LOG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/engine/request.h"

namespace tokend::service {

enum class LogLevel { kInfo, kWarning, kError };

// A value is escaped as its format needs; a number is one in JSON too.
struct LogField {
  LogField(absl::string_view field_key, absl::string_view field_value)
      : key(field_key), value(field_value) {}
  LogField(absl::string_view field_key, const char* field_value)
      : LogField(field_key, absl::string_view(field_value)) {}
  LogField(absl::string_view field_key, const std::string& field_value)
      : LogField(field_key, absl::string_view(field_value)) {}
  LogField(absl::string_view field_key, int64_t field_value)
      : key(field_key), value(absl::StrCat(field_value)), is_number(true) {}
  LogField(absl::string_view field_key, int field_value)
      : LogField(field_key, static_cast<int64_t>(field_value)) {}
  LogField(absl::string_view field_key, double field_value);

  std::string key;
  std::string value;
  bool is_number = false;
};

// Before the first line; else key=value.
void SetUpLog(bool json);

// One line: time, level, event and fields. Thread-safe.
void Log(LogLevel level, absl::string_view event, const std::vector<LogField>& fields = {});

// One line without time, as Log writes it; for tests.
std::string FormatLogLine(bool json, LogLevel level, absl::string_view event,
                          const std::vector<LogField>& fields);

struct TurnLogLine {
  std::string method;
  std::string principal;
  std::string request_id;
  std::string session;
  absl::Duration total;
};

// The one line of a turn's end. `finished` is nullptr if it failed.
void LogTurn(const TurnLogLine& line, const absl::Status& status, const engine::Finished* finished);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_LOG_H_
