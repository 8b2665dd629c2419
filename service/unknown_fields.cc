#include "service/unknown_fields.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "service/errors.h"

namespace tokend::service {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : absl::StrCat(path, ".", name);
}

// Depth is bounded: no message of ours contains itself.
absl::Status Check(const Message& message, const std::string& path) {
  const auto* reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (!unknown.empty()) {
    return UnknownField(message.GetDescriptor()->full_name(), unknown.field(0).number(), path);
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string name = Join(path, field->name());
    if (!field->is_repeated()) {
      TOKEND_RETURN_IF_ERROR(Check(reflection->GetMessage(message, field), name));
      continue;
    }
    const int size = reflection->FieldSize(message, field);
    for (int i = 0; i < size; ++i) {
      const Message& item = reflection->GetRepeatedMessage(message, field, i);
      TOKEND_RETURN_IF_ERROR(Check(item, absl::StrCat(name, "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNoUnknownFields(const Message& message) { return Check(message, ""); }

}  // namespace tokend::service
