// Chat templates of model files: Jinja as Hugging Face sets it up (trim_blocks, lstrip_blocks, loop
// controls, the `generation` tag, raise_exception, strftime_now, tojson), in an immutable sandbox.
#ifndef TOKEND_CORE_CHAT_TEMPLATE_H_
#define TOKEND_CORE_CHAT_TEMPLATE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "core/chat/ast.h"
#include "core/chat/value.h"

namespace tokend::chat {

// Immutable and thread-safe.
class Template {
 public:
  // Errors: FAILED_PRECONDITION, kTemplateFailed, with line and column: what Jinja refuses to
  // compile, a tag that reads files, or more than limits.h allows.
  static absl::StatusOr<std::unique_ptr<const Template>> Parse(absl::string_view source);

  // All of the text or an error, never a part. `variables` is a dict; what it lacks is undefined.
  // `now` is what strftime_now writes. Reads and writes nothing else: the same arguments give the
  // same text. Errors: FAILED_PRECONDITION, kTemplateFailed, with line and column.
  absl::StatusOr<Text> Render(const Value& variables, absl::CivilSecond now) const;

 private:
  explicit Template(std::vector<NodePtr> statements) : statements_(std::move(statements)) {}

  const std::vector<NodePtr> statements_;
};

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_TEMPLATE_H_
