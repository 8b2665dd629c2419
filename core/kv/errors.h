// Every way in which the store says no. Reasons and metadata: tokend.v1.ErrorReason.
#ifndef TOKEND_CORE_KV_ERRORS_H_
#define TOKEND_CORE_KV_ERRORS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/kv/types.h"

namespace tokend::kv {

// NOT_FOUND, NO_SUCH_RESOURCE; metadata "resource_name".
absl::Status SessionNotFound(absl::string_view id);
// The number was never given out; as before, and "resource_type".
absl::Status VersionNotFound(absl::string_view id, int64_t version);

// NOT_FOUND, VERSION_NOT_RETAINED; metadata "oldest_version" and those of VersionNotFound.
absl::Status VersionNotRetained(absl::string_view id, int64_t version, Version oldest);

// ALREADY_EXISTS, SESSION_EXISTS; metadata "resource_name".
absl::Status SessionExists(absl::string_view id);

// RESOURCE_EXHAUSTED, SESSION_LIMIT; metadata "max_sessions".
absl::Status SessionLimit(int max_sessions);

// ABORTED, VERSION_MISMATCH; metadata "current_version".
absl::Status VersionMismatch(int64_t expected, Version current);

// ABORTED, SESSION_BUSY.
absl::Status SessionBusy(absl::string_view id);

// ABORTED, SESSION_DELETED.
absl::Status SessionDeleted(absl::string_view id);

// OUT_OF_RANGE, BAD_POSITION; metadata "first_position", "tokens".
absl::Status BadPosition(int64_t position, int64_t first_position, int64_t tokens);

// RESOURCE_EXHAUSTED, KV_POOL_FULL; metadata "needed_pages", "total_pages". No
// retry hint where the pool is smaller than the need.
absl::Status PoolFull(int64_t needed_pages, int64_t total_pages);

// RESOURCE_EXHAUSTED, KV_POOL_FULL: turns that were admitted may need what would be
// pinned.
absl::Status PinTakesTooMuch();

// RESOURCE_EXHAUSTED, QUOTA_EXCEEDED; metadata "principal", "needed_pages",
// "quota_pages". `needed_pages`: pinned by all of its sessions.
absl::Status QuotaExceeded(absl::string_view principal, int64_t needed_pages, int64_t quota_pages);

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_ERRORS_H_
