#ifndef TOKEND_SERVICE_UNKNOWN_FIELDS_H_
#define TOKEND_SERVICE_UNKNOWN_FIELDS_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace tokend::service {

// INVALID_ARGUMENT, UNKNOWN_FIELD, if `message` holds at any depth a field that its
// type does not have.
absl::Status CheckNoUnknownFields(const google::protobuf::Message& message);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_UNKNOWN_FIELDS_H_
