#ifndef TOKEND_SERVICE_MODEL_RUNTIME_H_
#define TOKEND_SERVICE_MODEL_RUNTIME_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/observer.h"
#include "core/engine/engine.h"
#include "core/gguf/file.h"
#include "core/kv/session_store.h"
#include "core/model/model.h"
#include "core/ops/backend.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"
#include "service/call_env.h"
#include "service/device.h"
#include "service/settings.h"
#include "tokend/v1/model.pb.h"

namespace tokend::service {

// A model, loaded and warm, and the engine that serves it.
class ModelRuntime {
 public:
  struct Inputs {
    const Settings* settings = nullptr;
    Device device;
    const gguf::File* file = nullptr;  // outlives the runtime, as the model does
    const model::Model* model = nullptr;
    base::Clock* clock = nullptr;
    base::Observer* observer = nullptr;
    const std::atomic<bool>* cancelled = nullptr;  // ends the loading with CANCELLED
    std::function<void(absl::string_view phase, double share)> progress;
  };

  // Everything but starting the engine: tokenizer, weights, pages, one step of each
  // kind to warm up. Adds to `card` what GetModel shows of it.
  static absl::StatusOr<std::unique_ptr<ModelRuntime>> Load(const Inputs& inputs, v1::Model* card);

  engine::Engine* engine() const { return engine_.get(); }
  const Serving& serving() const { return serving_; }
  const ops::BackendInfo& backend_info() const { return backend_info_; }
  // What it came to, which is the CPU where the chosen one could not hold the model.
  const Device& device() const { return device_; }

 private:
  ModelRuntime() = default;

  absl::Status LoadTokenizer(const Inputs& inputs);
  absl::Status LoadBackend(const Inputs& inputs);
  // The backend on device_, and its arena.
  absl::Status TryBackend(const Inputs& inputs);
  absl::StatusOr<int64_t> CountPages(const Inputs& inputs, int64_t available_bytes) const;
  absl::Status MakeEngine(const Inputs& inputs, const std::string& fingerprint);

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<tokenizer::ChatTemplate> chat_;  // nullptr: the model has none
  Device device_;
  std::unique_ptr<ops::Backend> backend_;
  ops::BackendInfo backend_info_;
  int64_t pages_ = 0;
  std::unique_ptr<kv::SessionStore> store_;
  std::unique_ptr<engine::Engine> engine_;
  Serving serving_;
};

// Runs a prompt and a single token through the model: every later step finds its
// code and memory in place. DATA_LOSS if the logits are not numbers.
absl::Status WarmUp(ops::Backend* backend, int layers, int page_tokens);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_MODEL_RUNTIME_H_
