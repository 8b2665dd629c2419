// What tokctl prints: results on stdout, everything else on stderr.
#ifndef TOKEND_SERVICE_TOKCTL_OUTPUT_H_
#define TOKEND_SERVICE_TOKCTL_OUTPUT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "google/protobuf/timestamp.pb.h"
#include "grpcpp/support/status.h"
#include "service/tokctl/commands.h"

namespace tokend::tokctl {

// One line of JSON: proto field names, every field present.
void PrintJson(const google::protobuf::Message& message);

// "tokctl: ..." or, with --json, {"message": ...}, on stderr.
void PrintFailure(const Globals& globals, absl::string_view message);

// The server's answer with its reason and metadata. Returns the exit code.
int PrintStatus(const Globals& globals, const grpc::Status& status);

// Two columns, the first padded.
void PrintPairs(const std::vector<std::pair<std::string, std::string>>& pairs);

// Columns as wide as their widest cell; the first row is the heading.
void PrintTable(const std::vector<std::vector<std::string>>& rows);

std::string FormatBytes(int64_t bytes);  // "98.4 MB"
std::string FormatTime(const google::protobuf::Timestamp& time);
double ToSeconds(const google::protobuf::Duration& duration);

// The whole file, "-" for stdin. False: cannot be read or is longer than any server
// takes (printed).
bool ReadFile(const Globals& globals, const std::string& path, std::string* out);

// Empty, or what is wrong: the wire carries text as UTF-8 alone.
std::string CheckUtf8(const std::string& text);

// Empty, or what is wrong with "1,2,3".
std::string CheckTokenIds(const std::string& list);
// `lists` are good ones.
std::vector<int32_t> ParseTokenIds(const std::vector<std::string>& lists);

}  // namespace tokend::tokctl

#endif  // TOKEND_SERVICE_TOKCTL_OUTPUT_H_
