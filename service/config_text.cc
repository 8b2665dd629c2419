// ServerConfig from a file and from flags.
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "service/errors.h"
#include "service/settings.h"

namespace tokend::service {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

// Keeps the first error; the parser stops there anyway.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!message_.empty()) return;
    line_ = line;
    column_ = column;
    message_ = message;
  }
  void AddWarning(int line, int column, const std::string& message) override {
    AddError(line, column, message);
  }

  int line() const { return line_; }
  int column() const { return column_; }
  const std::string& message() const { return message_; }

 private:
  int line_ = 0;
  int column_ = 0;
  std::string message_;
};

// Some of the parser's messages do not name the field: the line does.
std::string LineOf(const std::string& text, int line) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (line < 0 || static_cast<size_t>(line) >= lines.size()) return "";
  const absl::string_view stripped = absl::StripAsciiWhitespace(lines[line]);
  return stripped.empty() ? "" : absl::StrCat(", in ", Echo(stripped));
}

absl::Status ParseMessage(const std::string& text, google::protobuf::Message* message,
                          absl::string_view where) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(text, message)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ":", error.line() + 1, ":",
                                                 error.column() + 1, ": ", error.message(),
                                                 LineOf(text, error.line())));
}

// A number, which KiB, MiB or GiB may follow.
bool ParseBytes(absl::string_view text, int64_t* bytes) {
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&text, "KiB")) {
    unit = int64_t{1} << 10;
  } else if (absl::ConsumeSuffix(&text, "MiB")) {
    unit = int64_t{1} << 20;
  } else if (absl::ConsumeSuffix(&text, "GiB")) {
    unit = int64_t{1} << 30;
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count > INT64_MAX / unit || count < INT64_MIN / unit) {
    return false;
  }
  *bytes = count * unit;
  return true;
}

absl::Status BadFlag(const FieldDescriptor* field, absl::string_view value,
                     absl::string_view problem) {
  return BadSetting(field->name(), absl::StrCat(Echo(value), " is ", problem, " (flag --",
                                                FlagName(field->name()), ")"));
}

absl::Status SetNumber(const FieldDescriptor* field, const std::string& value,
                       v1::ServerConfig* config) {
  const Reflection* reflection = config->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    double number = 0;
    if (!absl::SimpleAtod(value, &number)) return BadFlag(field, value, "not a number");
    reflection->SetDouble(config, field, number);
    return absl::OkStatus();
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    int32_t number = 0;
    if (!absl::SimpleAtoi(value, &number)) return BadFlag(field, value, "not a number in range");
    reflection->SetInt32(config, field, number);
    return absl::OkStatus();
  }
  TOKEND_CHECK(field->cpp_type() == FieldDescriptor::CPPTYPE_INT64);
  int64_t number = 0;
  if (absl::EndsWith(field->name(), "_bytes") ? !ParseBytes(value, &number)
                                              : !absl::SimpleAtoi(value, &number)) {
    return BadFlag(field, value, "not a number in range");
  }
  reflection->SetInt64(config, field, number);
  return absl::OkStatus();
}

absl::Status SetOne(const FieldDescriptor* field, const std::string& value,
                    v1::ServerConfig* config) {
  const Reflection* reflection = config->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      if (field->is_repeated()) {
        reflection->AddString(config, field, value);
      } else {
        reflection->SetString(config, field, value);
      }
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_BOOL:
      if (value != "true" && value != "false") return BadFlag(field, value, "not true or false");
      reflection->SetBool(config, field, value == "true");
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      auto* message = field->is_repeated() ? reflection->AddMessage(config, field)
                                           : reflection->MutableMessage(config, field);
      return ParseMessage(value, message, absl::StrCat("--", FlagName(field->name())));
    }
    default:
      return SetNumber(field, value, config);
  }
}

}  // namespace

absl::StatusOr<v1::ServerConfig> ParseConfigText(const std::string& text,
                                                 absl::string_view file_name) {
  v1::ServerConfig config;
  TOKEND_RETURN_IF_ERROR(ParseMessage(text, &config, file_name));
  return config;
}

absl::Status SetFromFlag(absl::string_view field_name, absl::Span<const std::string> values,
                         v1::ServerConfig* config) {
  const FieldDescriptor* field = config->GetDescriptor()->FindFieldByName(std::string(field_name));
  TOKEND_CHECK(field != nullptr);
  config->GetReflection()->ClearField(config, field);
  for (const std::string& value : values) {
    TOKEND_RETURN_IF_ERROR(SetOne(field, value, config));
  }
  return absl::OkStatus();
}

std::string FlagName(absl::string_view field_name) {
  if (field_name == "context_tokens") return "context";
  if (field_name == "kv_budget_bytes") return "kv-budget";
  return absl::StrReplaceAll(field_name, {{"_", "-"}});
}

}  // namespace tokend::service
