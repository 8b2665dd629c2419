// Failures that the service itself finds; those of the core come from its own
// modules.
#ifndef TOKEND_SERVICE_ERRORS_H_
#define TOKEND_SERVICE_ERRORS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tokend::service {

// INVALID_ARGUMENT, kUnknownField.
absl::Status UnknownField(absl::string_view message, int field_number, absl::string_view path);

// UNAVAILABLE, kModelLoading.
absl::Status ModelLoading(absl::Duration retry_after);

// UNAVAILABLE, kDraining.
absl::Status Draining();

// NOT_FOUND, kNoSuchResource; metadata "resource_type" and "resource_name".
absl::Status NoSuchResource(absl::string_view type, absl::string_view name);

// UNAUTHENTICATED.
absl::Status Unauthenticated(absl::string_view problem);

// INVALID_ARGUMENT in a configuration: "max_running: 0 is not in [1, 32]".
absl::Status BadSetting(absl::string_view setting, absl::string_view problem);

// INVALID_ARGUMENT, kInvalidField: where a field's path begins with `from`, it begins
// with `to`. For parts that do not know the request. Others are returned as they are.
absl::Status RenameField(const absl::Status& status, absl::string_view from, absl::string_view to);

// Gathers what is wrong with a request's fields, so that a caller sees all of it
// at once.
class FieldErrors {
 public:
  // `path` as in the request's JSON with proto names, e.g. "turn.sampling.top_p".
  void Add(absl::string_view path, absl::string_view problem);
  bool empty() const { return errors_.empty(); }
  // OK, or INVALID_ARGUMENT with all of them.
  absl::Status status() const;

 private:
  std::vector<std::pair<std::string, std::string>> errors_;
};

// At most kMaxEchoBytes of a caller's value, quoted, with what is not printable
// escaped.
std::string Echo(absl::string_view value);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_ERRORS_H_
