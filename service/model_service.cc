#include "service/model_service.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/tokenizer/utf8.h"
#include "service/errors.h"
#include "service/field_checks.h"
#include "service/limits.h"
#include "service/status.h"
#include "service/unknown_fields.h"

namespace tokend::service {
namespace {

absl::Status Get(const CallEnv& env, const grpc::CallbackServerContext& context,
                 const v1::GetModelRequest& request, v1::GetModelResponse* response) {
  TOKEND_RETURN_IF_ERROR(env.Principal(env.InfoOf(context)).status());
  TOKEND_RETURN_IF_ERROR(CheckNoUnknownFields(request));
  // Ready first: once it is, the model is complete.
  response->set_ready(env.serving_or_null() != nullptr);
  *response->mutable_model() = env.model();
  if (!request.name().empty() && request.name() != response->model().name()) {
    return NoSuchResource("model", request.name());
  }
  return absl::OkStatus();
}

absl::Status Tokenize(const Caller& caller, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse* response) {
  const bool is_text = request.source_case() == v1::TokenizeRequest::kText;
  if (request.source_case() == v1::TokenizeRequest::SOURCE_NOT_SET) {
    return base::InvalidField("text", "one of text and raw is required");
  }
  const std::string& source = is_text ? request.text() : request.raw();
  if (source.size() > kMaxTextBytes) {
    return base::InvalidField(is_text ? "text" : "raw",
                              absl::StrCat(source.size(), " bytes are more than ", kMaxTextBytes));
  }
  tokenizer::EncodeOptions options;
  options.add_bos = options.add_eos = !request.has_add_special() || request.add_special();
  options.parse_special = !request.has_parse_special() || request.parse_special();
  const auto ids = caller.serving->tokenizer->Encode(source, options);
  if (!ids.ok()) return is_text ? ids.status() : RenameField(ids.status(), "text", "raw");
  response->mutable_token_ids()->Assign(ids->begin(), ids->end());
  return absl::OkStatus();
}

absl::Status Detokenize(const Caller& caller, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse* response) {
  if (request.token_ids_size() > kMaxInputTokens) {
    return base::InvalidField("token_ids", absl::StrCat(request.token_ids_size(),
                                                        " ids are more than ", kMaxInputTokens));
  }
  const int32_t vocabulary_size = caller.serving->rules.vocabulary_size;
  FieldErrors errors;
  for (int i = 0; i < request.token_ids_size() && errors.empty(); ++i) {
    CheckRange<int32_t>(absl::StrCat("token_ids[", i, "]"), request.token_ids(i), 0,
                        vocabulary_size - 1, &errors);
  }
  TOKEND_RETURN_IF_ERROR(errors.status());
  const absl::Span<const int32_t> ids(request.token_ids().data(),
                                      static_cast<size_t>(request.token_ids_size()));
  TOKEND_ASSIGN_OR_RETURN(*response->mutable_raw(),
                          caller.serving->tokenizer->Detokenize(ids, request.skip_special()));
  response->set_text(tokenizer::ReplaceInvalidUtf8(response->raw()));
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* ModelServiceImpl::GetModel(grpc::CallbackServerContext* context,
                                                     const v1::GetModelRequest* request,
                                                     v1::GetModelResponse* response) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(Get(*env_, *context, *request, response)));
  return reactor;
}

grpc::ServerUnaryReactor* ModelServiceImpl::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* request,
                                                     v1::TokenizeResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::Tokenize(caller, *request, response);
  });
}

grpc::ServerUnaryReactor* ModelServiceImpl::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* request,
                                                       v1::DetokenizeResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    return service::Detokenize(caller, *request, response);
  });
}

}  // namespace tokend::service
