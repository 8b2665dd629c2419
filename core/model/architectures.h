// The table of architectures. A new one is one file in archs/ and one line here.
#ifndef TOKEND_CORE_MODEL_ARCHITECTURES_H_
#define TOKEND_CORE_MODEL_ARCHITECTURES_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/model/plan_reader.h"

namespace tokend::model {

struct Architecture {
  absl::string_view name;  // general.architecture
  // Fills the reader's plan from the file.
  absl::Status (*build)(PlanReader* reader);
};

absl::Span<const Architecture> Architectures();

// UNIMPLEMENTED, listing the known ones.
absl::StatusOr<const Architecture*> FindArchitecture(absl::string_view name);

// Each in its file of archs/.
absl::Status BuildLlama(PlanReader* reader);
absl::Status BuildGpt2(PlanReader* reader);
absl::Status BuildPhi3(PlanReader* reader);
absl::Status BuildChatGlm(PlanReader* reader);
absl::Status BuildGlm4(PlanReader* reader);
absl::Status BuildQwen2(PlanReader* reader);
absl::Status BuildQwen3(PlanReader* reader);
absl::Status BuildGemma2(PlanReader* reader);
absl::Status BuildGemma3(PlanReader* reader);
absl::Status BuildSmolLm3(PlanReader* reader);
absl::Status BuildOlmo2(PlanReader* reader);
absl::Status BuildGranite(PlanReader* reader);
absl::Status BuildStarCoder2(PlanReader* reader);
absl::Status BuildStableLm(PlanReader* reader);
absl::Status BuildGptNeoX(PlanReader* reader);
absl::Status BuildPhi2(PlanReader* reader);

}  // namespace tokend::model

#endif  // TOKEND_CORE_MODEL_ARCHITECTURES_H_
