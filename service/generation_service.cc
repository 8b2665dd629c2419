#include "service/generation_service.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "service/convert_output.h"
#include "service/errors.h"
#include "service/field_checks.h"
#include "service/names.h"
#include "service/status.h"
#include "service/turn_reactors.h"

namespace tokend::service {
namespace {

absl::Status CheckStop(const v1::StopGenerationRequest& request) {
  FieldErrors errors;
  if (!IsRequestId(request.request_id())) {
    errors.Add("request_id", "must be 1 to 64 of [A-Za-z0-9._-]");
  }
  if (request.has_keep_output_tokens()) {
    CheckRange<int32_t>("keep_output_tokens", request.keep_output_tokens(), 0, INT32_MAX, &errors);
  }
  return errors.status();
}

}  // namespace

grpc::ServerUnaryReactor* GenerationServiceImpl::Generate(grpc::CallbackServerContext* context,
                                                          const v1::GenerateRequest* request,
                                                          v1::GenerateResponse* response) {
  return StartGenerate(env_, context, *request, response);
}

grpc::ServerWriteReactor<v1::StreamResponse>* GenerationServiceImpl::Stream(
    grpc::CallbackServerContext* context, const v1::StreamRequest* request) {
  return StartStream(env_, context, *request);
}

grpc::ServerUnaryReactor* GenerationServiceImpl::StopGeneration(
    grpc::CallbackServerContext* context, const v1::StopGenerationRequest* request,
    v1::StopGenerationResponse* response) {
  auto* reactor = context->DefaultReactor();
  const auto caller = Enter(*env_, env_->InfoOf(*context), *request);
  const absl::Status checked = caller.ok() ? CheckStop(*request) : caller.status();
  if (!checked.ok()) {
    reactor->Finish(ToGrpcStatus(checked));
    return reactor;
  }
  std::optional<int32_t> keep;
  if (request->has_keep_output_tokens()) keep = request->keep_output_tokens();
  caller->serving->engine->Stop(caller->principal, request->request_id(), keep,
                                [reactor, response](absl::StatusOr<engine::Finished> finished) {
                                  if (finished.ok()) {
                                    *response->mutable_finished() = ToProto(*finished);
                                  }
                                  reactor->Finish(ToGrpcStatus(finished.status()));
                                });
  return reactor;
}

}  // namespace tokend::service
