// Range checks that name the field. NaN and infinities are in no range.
#ifndef TOKEND_SERVICE_FIELD_CHECKS_H_
#define TOKEND_SERVICE_FIELD_CHECKS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "service/errors.h"

namespace tokend::service {

// [low, high].
template <typename T>
bool CheckRange(absl::string_view path, T value, T low, T high, FieldErrors* errors) {
  if (value >= low && value <= high) return true;
  errors->Add(path, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
  return false;
}

// (low, high].
template <typename T>
bool CheckAbove(absl::string_view path, T value, T low, T high, FieldErrors* errors) {
  if (value > low && value <= high) return true;
  errors->Add(path, absl::StrCat(value, " is not in (", low, ", ", high, "]"));
  return false;
}

// A valid google.protobuf.Duration in [low, high].
std::optional<absl::Duration> CheckDuration(absl::string_view path,
                                            const google::protobuf::Duration& value,
                                            absl::Duration low, absl::Duration high,
                                            FieldErrors* errors);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_FIELD_CHECKS_H_
