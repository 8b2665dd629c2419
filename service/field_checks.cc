#include "service/field_checks.h"

namespace tokend::service {
namespace {

// As in the comments of google/protobuf/duration.proto: 10,000 years.
constexpr int64_t kMaxSeconds = 315576000000;

bool IsValid(const google::protobuf::Duration& value) {
  const int64_t seconds = value.seconds();
  const int32_t nanos = value.nanos();
  if (seconds < -kMaxSeconds || seconds > kMaxSeconds) return false;
  if (nanos <= -1000000000 || nanos >= 1000000000) return false;
  return (seconds <= 0 || nanos >= 0) && (seconds >= 0 || nanos <= 0);
}

}  // namespace

std::optional<absl::Duration> CheckDuration(absl::string_view path,
                                            const google::protobuf::Duration& value,
                                            absl::Duration low, absl::Duration high,
                                            FieldErrors* errors) {
  if (!IsValid(value)) {
    errors->Add(path, "not a valid duration");
    return std::nullopt;
  }
  const absl::Duration duration = absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
  if (duration >= low && duration <= high) return duration;
  errors->Add(path, absl::StrCat(absl::FormatDuration(duration), " is not in [",
                                 absl::FormatDuration(low), ", ", absl::FormatDuration(high), "]"));
  return std::nullopt;
}

}  // namespace tokend::service
