// tokctl's commands. Each takes its options from the command line into a struct
// of its own and, when it was chosen, runs and returns the exit code.
#ifndef TOKEND_SERVICE_TOKCTL_COMMANDS_H_
#define TOKEND_SERVICE_TOKCTL_COMMANDS_H_

#include <functional>
#include <string>

#include "CLI/CLI.hpp"

namespace tokend::tokctl {

enum ExitCode : int {
  kDone = 0,
  kRequestFailed = 1,  // the server said no, or a file could not be read
  kUsage = 2,
  kUnreachable = 3,  // no server, or not ready within --wait
  kBadModel = 65,
};

// What every command can read.
struct Globals {
  std::string server = "127.0.0.1:50551";
  std::string wait;   // "60s"; empty: do not wait
  std::string token;  // bearer token
  std::string ca_file;
  bool json = false;
};

using Action = std::function<int()>;

// Each adds its subcommands to `app`; the chosen one sets `action`.
void AddGenerate(CLI::App* app, const Globals* globals, Action* action);
void AddChat(CLI::App* app, const Globals* globals, Action* action);
void AddSessions(CLI::App* app, const Globals* globals, Action* action);
void AddModel(CLI::App* app, const Globals* globals, Action* action);
void AddTemplate(CLI::App* app, const Globals* globals, Action* action);

}  // namespace tokend::tokctl

#endif  // TOKEND_SERVICE_TOKCTL_COMMANDS_H_
