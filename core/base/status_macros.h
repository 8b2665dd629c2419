#ifndef TOKEND_CORE_BASE_STATUS_MACROS_H_
#define TOKEND_CORE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TOKEND_RETURN_IF_ERROR(expr)                                \
  do {                                                              \
    if (absl::Status tokend_status = (expr); !tokend_status.ok()) { \
      return tokend_status;                                         \
    }                                                               \
  } while (false)

#define TOKEND_CONCAT_INNER(a, b) a##b
#define TOKEND_CONCAT(a, b) TOKEND_CONCAT_INNER(a, b)

// TOKEND_ASSIGN_OR_RETURN(auto x, Compute());
#define TOKEND_ASSIGN_OR_RETURN(lhs, expr) \
  TOKEND_ASSIGN_OR_RETURN_IMPL(TOKEND_CONCAT(tokend_statusor_, __LINE__), lhs, expr)

#define TOKEND_ASSIGN_OR_RETURN_IMPL(statusor, lhs, expr) \
  auto statusor = (expr);                                 \
  if (!statusor.ok()) {                                   \
    return std::move(statusor).status();                  \
  }                                                       \
  lhs = *std::move(statusor)

#endif  // TOKEND_CORE_BASE_STATUS_MACROS_H_
