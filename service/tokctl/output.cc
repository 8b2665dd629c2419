#include "service/tokctl/output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/check.h"
#include "core/base/read_file.h"
#include "core/tokenizer/utf8.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace tokend::tokctl {
namespace {

// Far beyond what a server takes; --model has no limit of its own.
constexpr size_t kMaxFileBytes = 64 << 20;

std::string ToJson(const google::protobuf::Message& message, bool all_fields) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = all_fields;
  std::string json;
  // Fails only for broken well-known types, which a server does not send.
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return "{}";
  return json;
}

std::string CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : absl::StrCat(index);
}

// Reason and metadata of the ErrorInfo that the status carries, if it does.
google::rpc::ErrorInfo ReadErrorInfo(const grpc::Status& status) {
  google::rpc::ErrorInfo info;
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return info;
  for (const auto& detail : details.details()) {
    if (detail.Is<google::rpc::ErrorInfo>()) detail.UnpackTo(&info);
  }
  return info;
}

}  // namespace

void PrintJson(const google::protobuf::Message& message) {
  std::cout << ToJson(message, true) << std::endl;
}

void PrintFailure(const Globals& globals, absl::string_view message) {
  if (!globals.json) {
    std::cerr << "tokctl: " << message << std::endl;
    return;
  }
  google::protobuf::Struct object;
  (*object.mutable_fields())["message"].set_string_value(std::string(message));
  std::cerr << ToJson(object, false) << std::endl;
}

int PrintStatus(const Globals& globals, const grpc::Status& status) {
  const google::rpc::ErrorInfo info = ReadErrorInfo(status);
  if (globals.json) {
    google::protobuf::Struct object;
    auto& fields = *object.mutable_fields();
    fields["code"].set_string_value(CodeName(status.error_code()));
    fields["message"].set_string_value(status.error_message());
    fields["reason"].set_string_value(info.reason());
    auto& metadata = *fields["metadata"].mutable_struct_value()->mutable_fields();
    for (const auto& [key, value] : info.metadata()) metadata[key].set_string_value(value);
    std::cerr << ToJson(object, false) << std::endl;
  } else {
    std::cerr << "tokctl: " << CodeName(status.error_code());
    if (!info.reason().empty()) std::cerr << " (" << info.reason() << ")";
    std::cerr << ": " << status.error_message() << std::endl;
  }
  // Without a reason UNAVAILABLE is gRPC's own: nobody listens there.
  const bool unreachable =
      status.error_code() == grpc::StatusCode::UNAVAILABLE && info.reason().empty();
  return unreachable ? kUnreachable : kRequestFailed;
}

void PrintPairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  size_t width = 0;
  for (const auto& [name, value] : pairs) width = std::max(width, name.size());
  for (const auto& [name, value] : pairs) {
    std::cout << absl::StreamFormat("%-*s  %s\n", static_cast<int>(width), name, value);
  }
  std::cout << std::flush;
}

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      std::cout << absl::StreamFormat("%-*s%s", last ? 0 : static_cast<int>(widths[i]), row[i],
                                      last ? "\n" : "  ");
    }
  }
  std::cout << std::flush;
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatTime(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return "-";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(time.seconds()),
                          absl::UTCTimeZone());
}

double ToSeconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + 1e-9 * duration.nanos();
}

bool ReadFile(const Globals& globals, const std::string& path, std::string* out) {
  auto bytes = path == "-" ? base::ReadToEnd(STDIN_FILENO, "stdin", kMaxFileBytes)
                           : base::ReadWholeFile(path, kMaxFileBytes);
  if (!bytes.ok()) {
    PrintFailure(globals, bytes.status().message());
    return false;
  }
  *out = *std::move(bytes);
  return true;
}

std::string CheckUtf8(const std::string& text) {
  absl::string_view rest = text;
  while (!rest.empty()) {
    const tokenizer::Utf8Prefix prefix = tokenizer::ClassifyUtf8(rest);
    if (prefix.kind != tokenizer::Utf8Prefix::kCodePoint) {
      return absl::StrCat("not UTF-8 at byte ", text.size() - rest.size());
    }
    rest.remove_prefix(prefix.size);
  }
  return "";
}

std::string CheckTokenIds(const std::string& list) {
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::StrCat("\"", absl::CHexEscape(part.substr(0, 20)), "\" is no token id");
    }
  }
  return "";
}

std::vector<int32_t> ParseTokenIds(const std::vector<std::string>& lists) {
  std::vector<int32_t> ids;
  for (const std::string& list : lists) {
    for (const absl::string_view part : absl::StrSplit(list, ',')) {
      TOKEND_CHECK(absl::SimpleAtoi(part, &ids.emplace_back()));
    }
  }
  return ids;
}

}  // namespace tokend::tokctl
