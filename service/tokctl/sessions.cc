// tokctl sessions create|list|show|fork|rollback|delete.
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "service/tokctl/client.h"
#include "service/tokctl/commands.h"
#include "service/tokctl/output.h"

namespace tokend::tokctl {
namespace {

struct SessionOptions {
  std::string id;
  std::string to;  // fork: the new session
  std::optional<int64_t> version;
  std::optional<int64_t> expected_version;
  std::optional<int64_t> end_position;
  std::optional<int32_t> sinks;
  std::optional<int32_t> window;
  std::optional<int32_t> full_layers;
  std::optional<int32_t> kept_pages;
  std::optional<double> idle_ttl_seconds;
  std::optional<int64_t> history_tokens;
  bool pinned = false;
  bool allow_missing = false;
};

// Empty, or what is wrong. The server's own bound is a little tighter.
std::string CheckSeconds(const std::string& text) {
  double seconds = 0;
  const bool good = absl::SimpleAtod(text, &seconds) && seconds >= 0 && seconds <= 3.2e8;
  return good ? "" : "expected seconds, 0 to 3.2e8";
}

// A call of the session service: CALL(&context, request, &response).
template <typename Request, typename Response>
using Method = grpc::Status (v1::SessionService::Stub::*)(grpc::ClientContext*, const Request&,
                                                          Response*);

template <typename Request, typename Response>
grpc::Status Call(Client* client, Method<Request, Response> method, const Request& request,
                  Response* response) {
  grpc::ClientContext context;
  client->Prepare(&context);
  return (client->sessions()->*method)(&context, request, response);
}

std::string SessionName(const std::string& id) { return absl::StrCat("sessions/", id); }

std::string VersionName(const std::string& id, int64_t version) {
  return absl::StrCat("sessions/", id, "/versions/", version);
}

std::string WindowText(const v1::SlidingWindow& window) {
  return absl::StrCat("window ", window.window_tokens(), ", sinks ", window.sink_tokens());
}

std::string RetentionText(const v1::RetentionPolicy& retention) {
  switch (retention.policy_case()) {
    case v1::RetentionPolicy::kFull:
      return "full";
    case v1::RetentionPolicy::kSlidingWindow:
      return WindowText(retention.sliding_window());
    case v1::RetentionPolicy::kLayered:
      return absl::StrCat(retention.layered().full_layers(), " full layers, then ",
                          WindowText(retention.layered().window()));
    case v1::RetentionPolicy::kHeavyHitters:
      return absl::StrCat("window ", retention.heavy_hitters().window_tokens(), ", sinks ",
                          retention.heavy_hitters().sink_tokens(), ", ",
                          retention.heavy_hitters().kept_pages(), " heavy pages");
    case v1::RetentionPolicy::POLICY_NOT_SET:
      break;
  }
  return "unknown";
}

void PrintSession(const v1::Session& session) {
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"name", session.name()},
      {"version", absl::StrCat(session.version())},
      {"tokens", absl::StrCat(session.tokens(), ", ", session.resident_tokens(), " with KV")},
      {"retention", RetentionText(session.retention())},
      {"active turns", absl::StrCat(session.active_turns())},
      {"created", FormatTime(session.create_time())},
      {"updated", FormatTime(session.update_time())},
      {"uid", session.uid()}};
  if (session.first_position() > 0) {
    pairs.emplace_back("first position", absl::StrCat(session.first_position()));
  }
  if (session.has_idle_ttl()) {
    pairs.emplace_back("idle ttl", absl::StrCat(ToSeconds(session.idle_ttl()), " s"));
  }
  if (session.pinned()) pairs.emplace_back("pinned", "yes");
  if (!session.forked_from().empty()) pairs.emplace_back("forked from", session.forked_from());
  PrintPairs(pairs);
}

// A response that holds a session.
template <typename Response>
int Report(const Globals& globals, const grpc::Status& status, const Response& response) {
  if (!status.ok()) return PrintStatus(globals, status);
  if (globals.json) {
    PrintJson(response);
  } else {
    PrintSession(response.session());
  }
  return kDone;
}

int Create(const Globals& globals, Client* client, const SessionOptions& options) {
  v1::CreateSessionRequest request;
  request.set_session_id(options.id);
  v1::Session* session = request.mutable_session();
  if (options.window && options.kept_pages) {
    v1::HeavyHitters* heavy = session->mutable_retention()->mutable_heavy_hitters();
    heavy->set_window_tokens(*options.window);
    heavy->set_sink_tokens(options.sinks.value_or(0));
    heavy->set_kept_pages(*options.kept_pages);
  } else if (options.window) {
    v1::RetentionPolicy* retention = session->mutable_retention();
    v1::SlidingWindow* window = options.full_layers ? retention->mutable_layered()->mutable_window()
                                                    : retention->mutable_sliding_window();
    if (options.full_layers) retention->mutable_layered()->set_full_layers(*options.full_layers);
    window->set_window_tokens(*options.window);
    window->set_sink_tokens(options.sinks.value_or(0));
  }
  if (options.idle_ttl_seconds) {
    const double seconds = *options.idle_ttl_seconds;
    session->mutable_idle_ttl()->set_seconds(static_cast<int64_t>(seconds));
    session->mutable_idle_ttl()->set_nanos(
        static_cast<int32_t>((seconds - static_cast<double>(static_cast<int64_t>(seconds))) * 1e9));
  }
  if (options.history_tokens) session->set_history_tokens(*options.history_tokens);
  session->set_pinned(options.pinned);
  v1::CreateSessionResponse response;
  const grpc::Status status =
      Call(client, &v1::SessionService::Stub::CreateSession, request, &response);
  return Report(globals, status, response);
}

int List(const Globals& globals, Client* client, const SessionOptions&) {
  v1::ListSessionsResponse all;
  v1::ListSessionsRequest request;
  do {
    v1::ListSessionsResponse page;
    const grpc::Status status =
        Call(client, &v1::SessionService::Stub::ListSessions, request, &page);
    if (!status.ok()) return PrintStatus(globals, status);
    for (const v1::Session& session : page.sessions()) *all.add_sessions() = session;
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (globals.json) {
    PrintJson(all);
    return kDone;
  }
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "VERSION", "TOKENS", "WITH KV", "RETENTION", "TURNS", "UPDATED"}};
  for (const v1::Session& session : all.sessions()) {
    rows.push_back({session.name(), absl::StrCat(session.version()), absl::StrCat(session.tokens()),
                    absl::StrCat(session.resident_tokens()), RetentionText(session.retention()),
                    absl::StrCat(session.active_turns()), FormatTime(session.update_time())});
  }
  PrintTable(rows);
  return kDone;
}

grpc::Status AllVersions(Client* client, const std::string& id, v1::ListVersionsResponse* all) {
  v1::ListVersionsRequest request;
  request.set_parent(SessionName(id));
  do {
    v1::ListVersionsResponse page;
    grpc::Status status = Call(client, &v1::SessionService::Stub::ListVersions, request, &page);
    if (!status.ok()) return status;
    for (const v1::Version& version : page.versions()) *all->add_versions() = version;
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return grpc::Status::OK;
}

std::string ReasonText(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_UNSPECIFIED) return "-";
  return v1::FinishReason_Name(reason).substr(std::string("FINISH_REASON_").size());
}

// The session and its versions. JSON: two lines, a GetSessionResponse and a
// ListVersionsResponse.
int Show(const Globals& globals, Client* client, const SessionOptions& options) {
  v1::GetSessionRequest request;
  request.set_name(SessionName(options.id));
  v1::GetSessionResponse response;
  grpc::Status status = Call(client, &v1::SessionService::Stub::GetSession, request, &response);
  v1::ListVersionsResponse versions;
  if (status.ok()) status = AllVersions(client, options.id, &versions);
  if (!status.ok()) return PrintStatus(globals, status);
  if (globals.json) {
    PrintJson(response);
    PrintJson(versions);
    return kDone;
  }
  PrintSession(response.session());
  std::vector<std::vector<std::string>> rows = {
      {"VERSION", "PARENT", "TOKENS", "REASON", "CREATED", "REQUEST"}};
  for (const v1::Version& version : versions.versions()) {
    const std::string& parent = version.parent();
    rows.push_back({absl::StrCat(version.number()),
                    parent.empty() ? "-" : parent.substr(parent.rfind('/') + 1),
                    absl::StrCat(version.tokens()), ReasonText(version.reason()),
                    FormatTime(version.create_time()),
                    version.request_id().empty() ? "-" : version.request_id()});
  }
  std::cout << "\n";
  PrintTable(rows);
  return kDone;
}

int Fork(const Globals& globals, Client* client, const SessionOptions& options) {
  v1::ForkSessionRequest request;
  request.set_source(options.version ? VersionName(options.id, *options.version)
                                     : SessionName(options.id));
  request.set_session_id(options.to);
  if (options.end_position) request.set_end_position(*options.end_position);
  v1::ForkSessionResponse response;
  const grpc::Status status =
      Call(client, &v1::SessionService::Stub::ForkSession, request, &response);
  return Report(globals, status, response);
}

int Rollback(const Globals& globals, Client* client, const SessionOptions& options) {
  v1::RollbackSessionRequest request;
  request.set_version(VersionName(options.id, *options.version));
  if (options.expected_version) request.set_expected_version(*options.expected_version);
  v1::RollbackSessionResponse response;
  const grpc::Status status =
      Call(client, &v1::SessionService::Stub::RollbackSession, request, &response);
  return Report(globals, status, response);
}

int Delete(const Globals& globals, Client* client, const SessionOptions& options) {
  v1::DeleteSessionRequest request;
  request.set_name(SessionName(options.id));
  request.set_allow_missing(options.allow_missing);
  if (options.expected_version) request.set_expected_version(*options.expected_version);
  v1::DeleteSessionResponse response;
  const grpc::Status status =
      Call(client, &v1::SessionService::Stub::DeleteSession, request, &response);
  if (!status.ok()) return PrintStatus(globals, status);
  if (globals.json) PrintJson(response);
  return kDone;
}

using Run = int (*)(const Globals&, Client*, const SessionOptions&);

CLI::App* AddCommand(CLI::App* sessions, const std::string& name, const std::string& help, Run run,
                     const std::shared_ptr<SessionOptions>& options, const Globals* globals,
                     Action* action) {
  CLI::App* command = sessions->add_subcommand(name, help);
  command->callback([=] {
    *action = [=] {
      const auto client = Client::Connect(*globals);
      return client == nullptr ? static_cast<int>(kUnreachable)
                               : run(*globals, client.get(), *options);
    };
  });
  return command;
}

}  // namespace

void AddSessions(CLI::App* app, const Globals* globals, Action* action) {
  CLI::App* sessions = app->add_subcommand("sessions", "Create, look at and change sessions");
  sessions->require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& help, Run run,
                       const std::shared_ptr<SessionOptions>& o) {
    return AddCommand(sessions, name, help, run, o, globals, action);
  };
  const auto make = [] { return std::make_shared<SessionOptions>(); };
  constexpr char kId[] = "Session";
  constexpr char kExpected[] = "Fail if the head is another one";

  auto o = make();
  CLI::App* create = add("create", "Make an empty session", Create, o);
  create->add_option("session", o->id, "Its name; the server picks one if absent")
      ->check(CheckUtf8);
  auto* window = create->add_option("--window", o->window, "Keep so many newest tokens' KV");
  create->add_option("--sinks", o->sinks, "And so many oldest")->needs(window);
  auto* full_layers =
      create->add_option("--full-layers", o->full_layers, "But all in the first so many layers")
          ->needs(window);
  create->add_option("--kept-pages", o->kept_pages, "And the so many pages most attended to")
      ->needs(window)
      ->excludes(full_layers);
  create->add_option("--idle-ttl", o->idle_ttl_seconds, "Delete after so many idle seconds")
      ->check(CheckSeconds);
  create->add_option("--history-tokens", o->history_tokens, "Newest tokens to remember; 0: all");
  create->add_flag("--pinned", o->pinned, "Keep its KV under memory pressure");

  add("list", "All sessions", List, make());

  o = make();
  add("show", "One session and its versions", Show, o)
      ->add_option("session", o->id, kId)
      ->check(CheckUtf8)
      ->required();

  o = make();
  CLI::App* fork = add("fork", "A new session with the same content", Fork, o);
  fork->add_option("session", o->id, kId)->check(CheckUtf8)->required();
  fork->add_option("new-session", o->to, "Its name; the server picks one if absent")
      ->check(CheckUtf8);
  fork->add_option("--version", o->version, "Fork this version; the head if absent");
  fork->add_option("--end-position", o->end_position, "Keep the tokens before this position");

  o = make();
  CLI::App* rollback = add("rollback", "Make an earlier version the newest", Rollback, o);
  rollback->add_option("session", o->id, kId)->check(CheckUtf8)->required();
  rollback->add_option("version", o->version, "The version to go back to")->required();
  rollback->add_option("--expected-version", o->expected_version, kExpected);

  o = make();
  CLI::App* remove = add("delete", "Delete a session", Delete, o);
  remove->add_option("session", o->id, kId)->check(CheckUtf8)->required();
  remove->add_option("--expected-version", o->expected_version, kExpected);
  remove->add_flag("--allow-missing", o->allow_missing, "No error if it is not there");
}

}  // namespace tokend::tokctl
