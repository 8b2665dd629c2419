#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "service/daemon.h"
#include "service/exit_code.h"
#include "service/flags.h"
#include "service/log.h"
#include "service/signals.h"

namespace tokend::service {
namespace {

// gRPC's own messages: its errors in our format, the rest only if GRPC_VERBOSITY
// asks for it.
void LogGrpc(gpr_log_func_args* args) {
  Log(args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kInfo, "grpc",
      {{"message", args->message}});
}

// protobuf's own messages, in our format. What a caller's bytes provoke is the
// caller's to know, and could fill the log.
void LogProtobuf(google::protobuf::LogLevel level, const char*, int, const std::string& message) {
  if (absl::StrContains(message, "invalid UTF-8")) return;
  Log(level == google::protobuf::LOGLEVEL_FATAL ? LogLevel::kError : LogLevel::kWarning, "protobuf",
      {{"message", message}});
}

int Fail(const absl::Status& status) {
  Log(LogLevel::kError, "failed",
      {{"message", absl::string_view(status.message().data(), status.message().size())}});
  return static_cast<int>(ExitCodeOf(status));
}

int Main(int argc, const char* const* argv) {
  Signals::Block();
  // Before any thread: kernels are loaded when the device is opened, not when each is
  // first used, so that what is free afterwards stays free.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  google::protobuf::SetLogHandler(LogProtobuf);
  const auto line = ParseCommandLine(argc, argv);
  if (!line.ok()) return Fail(line.status());
  if (line->done) {
    std::fputs(line->text.c_str(), stdout);
    return static_cast<int>(ExitCode::kDone);
  }
  SetUpLog(line->settings.json_log);
  gpr_set_log_function(LogGrpc);
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  Log(LogLevel::kInfo, "starting", {{"version", ServerVersion()}});
  auto daemon = Daemon::Create(line->settings, line->ports_file);
  if (!daemon.ok()) return Fail(daemon.status());
  const absl::Status ended = (*daemon)->Run();
  if (!ended.ok()) return Fail(ended);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace
}  // namespace tokend::service

int main(int argc, char** argv) { return tokend::service::Main(argc, argv); }
