#ifndef TOKEND_SERVICE_EXIT_CODE_H_
#define TOKEND_SERVICE_EXIT_CODE_H_

#include "absl/status/status.h"

namespace tokend::service {

// The daemon's exit codes (those of sysexits.h where there is one). systemd's unit
// restarts on kFailed alone.
enum class ExitCode : int {
  kDone = 0,
  kFailed = 1,      // a restart may help: a port in use, too little memory, a device
  kBadModel = 65,   // EX_DATAERR: the model file is damaged or not supported
  kBadConfig = 78,  // EX_CONFIG: a setting is wrong, or names what is not there
};

// For what ended the start or the run of the daemon.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_EXIT_CODE_H_
