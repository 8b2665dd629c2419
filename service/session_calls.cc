#include "service/session_calls.h"

#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "service/convert_session.h"
#include "service/errors.h"
#include "service/field_checks.h"
#include "service/limits.h"
#include "service/names.h"
#include "service/page_token.h"

namespace tokend::service {
namespace {

// "sessions/{session}" in `field`.
std::string SessionField(absl::string_view field, const std::string& value, FieldErrors* errors) {
  const auto name = ParseSessionName(value);
  if (name.has_value() && !name->version.has_value()) return name->id;
  errors->Add(field, absl::StrCat(Echo(value), " is not of the form sessions/{session}"));
  return "";
}

// A session or a version in `field`.
SessionName SessionOrVersionField(absl::string_view field, const std::string& value,
                                  FieldErrors* errors) {
  const auto name = ParseSessionName(value);
  if (name.has_value()) return *name;
  errors->Add(field, absl::StrCat(Echo(value),
                                  " is neither of the form sessions/{session} nor "
                                  "sessions/{session}/versions/{n}"));
  return {};
}

void CheckNewId(const std::string& id, FieldErrors* errors) {
  if (id.empty() || IsSessionId(id)) return;
  errors->Add("session_id", absl::StrCat(Echo(id),
                                         " is not 1 to 63 of [A-Za-z0-9._-] after a "
                                         "letter or digit"));
}

template <typename Request>
std::optional<int64_t> ExpectedVersion(const Request& request, FieldErrors* errors) {
  if (!request.has_expected_version()) return std::nullopt;
  CheckRange<int64_t>("expected_version", request.expected_version(), 0, INT64_MAX, errors);
  return request.expected_version();
}

int PageSize(int32_t wanted, int fallback, int most, FieldErrors* errors) {
  CheckRange<int32_t>("page_size", wanted, 0, most, errors);
  return wanted == 0 ? fallback : wanted;
}

}  // namespace

absl::Status CreateSession(const Caller& caller, const v1::CreateSessionRequest& request,
                           v1::CreateSessionResponse* response) {
  FieldErrors errors;
  CheckNewId(request.session_id(), &errors);
  TOKEND_RETURN_IF_ERROR(errors.status());
  const TurnRules& rules = caller.serving->rules;
  TOKEND_ASSIGN_OR_RETURN(const kv::SessionSpec spec,
                          ConvertSessionSpec(request.session(), rules.default_session,
                                             {rules.context_tokens, rules.layers}));
  TOKEND_ASSIGN_OR_RETURN(
      const kv::SessionInfo info,
      caller.serving->store->CreateSession(caller.principal, request.session_id(), spec));
  *response->mutable_session() = ToProto(info);
  return absl::OkStatus();
}

absl::Status GetSession(const Caller& caller, const v1::GetSessionRequest& request,
                        v1::GetSessionResponse* response) {
  FieldErrors errors;
  const std::string id = SessionField("name", request.name(), &errors);
  TOKEND_RETURN_IF_ERROR(errors.status());
  TOKEND_ASSIGN_OR_RETURN(const kv::SessionInfo info,
                          caller.serving->store->GetSession(caller.principal, id));
  *response->mutable_session() = ToProto(info);
  return absl::OkStatus();
}

absl::Status ListSessions(const Caller& caller, const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse* response) {
  FieldErrors errors;
  const int limit = PageSize(request.page_size(), kDefaultListPage, kMaxListPage, &errors);
  const std::string list = absl::StrCat("sessions by ", limit);
  std::string after;
  if (!request.page_token().empty()) {
    const auto place = ReadPageToken(list, request.page_token());
    if (!place.has_value()) errors.Add("page_token", "not a token of this list");
    after = place.value_or("");
  }
  TOKEND_RETURN_IF_ERROR(errors.status());
  // One more tells whether there is a next page.
  const auto sessions = caller.serving->store->ListSessions(caller.principal, after, limit + 1);
  for (const kv::SessionInfo& info : sessions) {
    if (response->sessions_size() == limit) {
      const std::string& last = sessions[static_cast<size_t>(limit) - 1].id;
      response->set_next_page_token(MakePageToken(list, last));
      break;
    }
    *response->add_sessions() = ToProto(info);
  }
  return absl::OkStatus();
}

absl::Status DeleteSession(const Caller& caller, const v1::DeleteSessionRequest& request,
                           v1::DeleteSessionResponse*) {
  FieldErrors errors;
  const std::string id = SessionField("name", request.name(), &errors);
  const auto expected = ExpectedVersion(request, &errors);
  TOKEND_RETURN_IF_ERROR(errors.status());
  TOKEND_RETURN_IF_ERROR(caller.serving->store->DeleteSession(caller.principal, id, expected,
                                                              request.allow_missing()));
  // Its turns end between two steps.
  caller.serving->engine->Wake();
  return absl::OkStatus();
}

absl::Status ForkSession(const Caller& caller, const v1::ForkSessionRequest& request,
                         v1::ForkSessionResponse* response) {
  FieldErrors errors;
  const SessionName source = SessionOrVersionField("source", request.source(), &errors);
  CheckNewId(request.session_id(), &errors);
  std::optional<int64_t> end;
  if (request.has_end_position()) {
    CheckRange<int64_t>("end_position", request.end_position(), 0, INT64_MAX, &errors);
    end = request.end_position();
  }
  TOKEND_RETURN_IF_ERROR(errors.status());
  TOKEND_ASSIGN_OR_RETURN(const kv::SessionInfo info,
                          caller.serving->store->Fork(caller.principal, source.id, source.version,
                                                      request.session_id(), end));
  *response->mutable_session() = ToProto(info);
  return absl::OkStatus();
}

absl::Status RollbackSession(const Caller& caller, const v1::RollbackSessionRequest& request,
                             v1::RollbackSessionResponse* response) {
  FieldErrors errors;
  const auto name = ParseSessionName(request.version());
  if (!name.has_value() || !name->version.has_value()) {
    errors.Add("version", absl::StrCat(Echo(request.version()),
                                       " is not of the form sessions/{session}/versions/{n}"));
  }
  const auto expected = ExpectedVersion(request, &errors);
  TOKEND_RETURN_IF_ERROR(errors.status());
  TOKEND_ASSIGN_OR_RETURN(
      const kv::SessionInfo info,
      caller.serving->store->Rollback(caller.principal, name->id, *name->version, expected));
  *response->mutable_session() = ToProto(info);
  return absl::OkStatus();
}

absl::Status ListVersions(const Caller& caller, const v1::ListVersionsRequest& request,
                          v1::ListVersionsResponse* response) {
  FieldErrors errors;
  const std::string id = SessionField("parent", request.parent(), &errors);
  const int limit = PageSize(request.page_size(), kDefaultListPage, kMaxListPage, &errors);
  const std::string list = absl::StrCat("versions of ", id, " by ", limit);
  std::optional<int64_t> before;
  if (!request.page_token().empty()) {
    const auto place = ReadPageToken(list, request.page_token());
    int64_t number = 0;
    if (!place.has_value() || !absl::SimpleAtoi(*place, &number)) {
      errors.Add("page_token", "not a token of this list");
    }
    before = number;
  }
  TOKEND_RETURN_IF_ERROR(errors.status());
  TOKEND_ASSIGN_OR_RETURN(const auto versions, caller.serving->store->ListVersions(
                                                   caller.principal, id, before, limit + 1));
  for (const kv::VersionInfo& info : versions) {
    if (response->versions_size() == limit) {
      const auto last = response->versions(limit - 1).number();
      response->set_next_page_token(MakePageToken(list, absl::StrCat(last)));
      break;
    }
    *response->add_versions() = ToProto(info);
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(const Caller& caller, const v1::ReadTokensRequest& request,
                        v1::ReadTokensResponse* response) {
  FieldErrors errors;
  const SessionName name = SessionOrVersionField("name", request.name(), &errors);
  std::optional<int64_t> start;
  if (request.has_start_position()) {
    CheckRange<int64_t>("start_position", request.start_position(), 0, INT64_MAX, &errors);
    start = request.start_position();
  }
  const int limit = PageSize(request.page_size(), kDefaultTokensPage, kMaxTokensPage, &errors);
  TOKEND_RETURN_IF_ERROR(errors.status());
  TOKEND_ASSIGN_OR_RETURN(
      const kv::TokenSlice slice,
      caller.serving->store->ReadTokens(caller.principal, name.id, name.version, start, limit));
  TOKEND_ASSIGN_OR_RETURN(*response->mutable_raw(),
                          caller.serving->tokenizer->RawBytes(slice.tokens));
  response->set_start_position(slice.start);
  response->mutable_token_ids()->Assign(slice.tokens.begin(), slice.tokens.end());
  if (slice.version != kv::Version::kNone) {
    response->set_version(VersionResource(slice.session_id, static_cast<int64_t>(slice.version)));
  }
  response->set_tokens(slice.total_tokens);
  return absl::OkStatus();
}

}  // namespace tokend::service
