#include "service/log.h"

#include <atomic>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/tokenizer/utf8.h"
#include "service/convert_output.h"
#include "service/status.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace tokend::service {
namespace {

std::atomic<bool> json_format = false;

// Also the spdlog sink's: made on first use, so that no order of static
// initialisation matters.
spdlog::logger* Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = spdlog::stderr_logger_mt("tokend");
    made->set_pattern("%v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return logger.get();
}

absl::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  for (const char c : tokenizer::ReplaceInvalidUtf8(text)) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", absl::string_view(&c, 1));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

// Bare where it is one word; else quoted.
std::string TextValue(absl::string_view text) {
  const bool plain = !text.empty() && text.find_first_of(" =\"\\") == absl::string_view::npos;
  // C's escapes, but for the apostrophe, which needs none.
  const std::string escaped = absl::StrReplaceAll(
      absl::Utf8SafeCEscape(tokenizer::ReplaceInvalidUtf8(text)), {{"\\'", "'"}});
  return plain && escaped == text ? escaped : absl::StrCat("\"", escaped, "\"");
}

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

}  // namespace

LogField::LogField(absl::string_view field_key, double field_value)
    : key(field_key), value(absl::StrFormat("%.3f", field_value)), is_number(true) {}

std::string FormatLogLine(bool json, LogLevel level, absl::string_view event,
                          const std::vector<LogField>& fields) {
  std::string line;
  if (json) {
    absl::StrAppend(&line, "\"level\":\"", LevelName(level), "\",\"event\":", JsonString(event));
    for (const LogField& field : fields) {
      absl::StrAppend(&line, ",", JsonString(field.key), ":",
                      field.is_number ? field.value : JsonString(field.value));
    }
    return line;
  }
  absl::StrAppend(&line, "level=", LevelName(level), " event=", TextValue(event));
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=",
                    field.is_number ? field.value : TextValue(field.value));
  }
  return line;
}

void SetUpLog(bool json) { json_format = json; }

void Log(LogLevel level, absl::string_view event, const std::vector<LogField>& fields) {
  const bool json = json_format;
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  const std::string rest = FormatLogLine(json, level, event, fields);
  Logger()->info("{}", json ? absl::StrCat("{\"time\":\"", time, "\",", rest, "}")
                            : absl::StrCat("time=", time, " ", rest));
}

void LogTurn(const TurnLogLine& line, const absl::Status& status,
             const engine::Finished* finished) {
  std::vector<LogField> fields = {{"method", line.method}};
  if (!line.request_id.empty()) fields.emplace_back("request_id", line.request_id);
  if (!line.principal.empty()) fields.emplace_back("principal", line.principal);
  if (!line.session.empty()) fields.emplace_back("session", line.session);
  if (finished == nullptr) {
    fields.emplace_back("reason", OutcomeName(status));
    fields.emplace_back("total_ms", Milliseconds(line.total));
    const bool ours = status.code() == absl::StatusCode::kInternal;
    // A caller's mistakes may quote the caller; our own faults say what broke.
    if (ours) {
      fields.emplace_back("message",
                          absl::string_view(status.message().data(), status.message().size()));
    }
    Log(ours ? LogLevel::kError : LogLevel::kInfo, "turn", fields);
    return;
  }
  const engine::Usage& usage = finished->usage;
  const engine::Timings& timings = finished->timings;
  fields.emplace_back("reason", FinishReasonName(finished->reason));
  if (!finished->version.empty()) fields.emplace_back("version", finished->version);
  fields.emplace_back("base_tokens", usage.base_tokens);
  fields.emplace_back("input_tokens", usage.input_tokens);
  fields.emplace_back("cached_tokens", usage.cached_tokens);
  fields.emplace_back("output_tokens", usage.output_tokens);
  fields.emplace_back("queue_ms", Milliseconds(timings.queue));
  fields.emplace_back("prefill_ms", Milliseconds(timings.prefill));
  fields.emplace_back("decode_ms", Milliseconds(timings.decode));
  fields.emplace_back("first_token_ms", Milliseconds(timings.time_to_first_token));
  fields.emplace_back("total_ms", Milliseconds(timings.total));
  Log(LogLevel::kInfo, "turn", fields);
}

}  // namespace tokend::service
