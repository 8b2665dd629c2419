#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpc/support/log.h"
#include "openssl/bio.h"
#include "openssl/pem.h"
#include "openssl/x509.h"
#include "service/tokctl/commands.h"
#include "service/tokctl/output.h"

namespace {

constexpr char kFooter[] =
    "Exit codes:\n"
    "  0   done\n"
    "  1   the server refused the request, or a file could not be read\n"
    "  2   wrong usage\n"
    "  3   the server cannot be reached, or is not ready within --wait\n"
    "  65  --model: not a model file that can be used";

std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  const bool good = absl::ParseDuration(text, &duration) && duration > absl::ZeroDuration() &&
                    duration <= absl::Hours(24);
  return good ? "" : "expected a duration such as 500ms, 60s or 2m, up to 24h";
}

// An empty file would have gRPC trust the system's certificates.
std::string CheckCertificates(const std::string& path) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> file(BIO_new_file(path.c_str(), "r"), &BIO_free);
  if (file == nullptr) return "cannot read " + path;
  char password[] = "";
  X509* certificate = PEM_read_bio_X509(file.get(), nullptr, nullptr, password);
  const bool found = certificate != nullptr;
  X509_free(certificate);
  return found ? "" : path + " holds no PEM certificate";
}

// gRPC aborts on a header that may not be one. Nothing of the token is printed.
std::string CheckToken(const std::string& token) {
  const auto bad = std::find_if_not(token.begin(), token.end(), absl::ascii_isprint);
  if (bad == token.end()) return "";
  return absl::StrCat("byte ", bad - token.begin(), " is not printable ASCII");
}

void Silence(gpr_log_func_args*) {}

}  // namespace

int main(int argc, char** argv) {
  using tokend::tokctl::Globals;
  // What gRPC logs is in the call's status as well, and --json promises JSON.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(Silence);
  CLI::App app("Talks to a tokend server.");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  Globals globals;
  tokend::tokctl::Action action;
  app.add_option("--server", globals.server, "HOST:PORT or unix:PATH")
      ->envname("TOKEND_SERVER")
      ->capture_default_str();
  app.add_option("--wait", globals.wait, "Wait so long for the server to be ready, e.g. 60s")
      ->check(CheckDuration);
  app.add_option("--token", globals.token,
                 "Bearer token; the environment keeps it out of process lists")
      ->envname("TOKEND_TOKEN")
      ->check(CheckToken);
  app.add_option("--ca-file", globals.ca_file, "Use TLS and trust these certificates (PEM)")
      ->check(CheckCertificates);
  app.add_flag("--json", globals.json, "Print JSON, errors too");
  AddChat(&app, &globals, &action);
  AddGenerate(&app, &globals, &action);
  AddSessions(&app, &globals, &action);
  AddModel(&app, &globals, &action);
  AddTemplate(&app, &globals, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    // Nothing was taken from the command line when it is wrong.
    globals.json = std::find(argv, argv + argc, std::string("--json")) != argv + argc;
    if (globals.json) {
      tokend::tokctl::PrintFailure(globals, error.what());
    } else {
      app.exit(error);
    }
    return tokend::tokctl::kUsage;
  }
  return action();
}
