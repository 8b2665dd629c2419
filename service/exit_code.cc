#include "service/exit_code.h"

#include "core/gguf/errors.h"

namespace tokend::service {

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kDone;
  if (gguf::IsBadModelFile(status)) return ExitCode::kBadModel;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    // The model file, or a file of the TLS settings.
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kBadConfig;
    default:
      return ExitCode::kFailed;
  }
}

}  // namespace tokend::service
