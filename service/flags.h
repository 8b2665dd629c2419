#ifndef TOKEND_SERVICE_FLAGS_H_
#define TOKEND_SERVICE_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "service/settings.h"

namespace tokend::service {

struct CommandLine {
  bool done = false;  // --help or --version: `text` is the answer
  std::string text;
  std::string ports_file;  // empty: none
  Settings settings;
};

// Reads flags and the configuration file. INVALID_ARGUMENT names the flag or
// setting, or what cannot be read.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// "1.4.0 (release)".
std::string ServerVersion();

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_FLAGS_H_
