// What GetModel shows of a model.
#ifndef TOKEND_SERVICE_MODEL_CARD_H_
#define TOKEND_SERVICE_MODEL_CARD_H_

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/dtype.h"
#include "core/model/model.h"
#include "core/ops/backend.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"
#include "tokend/v1/model.pb.h"

namespace tokend::service {

// What the opened file tells, before anything is loaded.
v1::Model DescribeModel(const model::Model& model, absl::string_view file_path,
                        base::KvDtype kv_dtype);

// Adds what is known once it is loaded. `chat` may be nullptr.
void CompleteModel(const std::string& fingerprint, const ops::BackendInfo& backend, int layers,
                   int page_tokens, bool heavy_hitters, const tokenizer::Tokenizer& tokenizer,
                   const tokenizer::ChatTemplate* chat, v1::Model* out);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_MODEL_CARD_H_
