#ifndef TOKEND_CORE_KV_ROOT_KEY_H_
#define TOKEND_CORE_KV_ROOT_KEY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/kv/policy.h"

namespace tokend::kv {

struct StoreOptions;

// A fresh id of `bytes` random bytes in hexadecimal.
std::string RandomId(int bytes);

// Names the roots of the prefix index. A root stands for all that KV depends on
// beside tokens (model, KV dtype, policy) and for who may share it. Its key is an
// HMAC-SHA-256 under a random key of this process, so that digests tell nothing
// about a principal's tokens. Thread-safe.
class RootNamer {
 public:
  explicit RootNamer(const StoreOptions& options);

  // 32 bytes. `chain`: of a session that shares with its forks alone; else empty.
  std::string Key(absl::string_view principal, const RetentionPolicy& policy,
                  absl::string_view chain) const;
  // The first eight of them.
  static uint64_t Digest(absl::string_view key);

 private:
  const std::string prefix_;  // model and dtype
  const bool share_;
  std::string secret_;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_ROOT_KEY_H_
