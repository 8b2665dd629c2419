// The engine's events as messages.
#ifndef TOKEND_SERVICE_CONVERT_OUTPUT_H_
#define TOKEND_SERVICE_CONVERT_OUTPUT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "core/engine/request.h"
#include "google/protobuf/duration.pb.h"
#include "tokend/v1/generation.pb.h"

namespace tokend::service {

// What a stream's messages hold besides the engine's events.
struct OutputContext {
  std::string request_id;
  std::string boot_id;
  bool always_raw = false;
};

google::protobuf::Duration ToProto(absl::Duration duration);
v1::Started ToProto(const engine::Started& started, const OutputContext& context);
v1::Delta ToProto(engine::Delta delta, const OutputContext& context);
v1::Finished ToProto(const engine::Finished& finished);

// Appends `more`, the piece that follows `delta`.
void Merge(engine::Delta more, engine::Delta* delta);

// "stop", "end_of_text", ...
std::string FinishReasonName(kv::FinishReason reason);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_CONVERT_OUTPUT_H_
