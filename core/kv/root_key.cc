#include "core/kv/root_key.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/dtype.h"
#include "core/kv/session_store.h"

namespace tokend::kv {
namespace {

std::string RandomBytes(int bytes) {
  std::string random(bytes, '\0');
  TOKEND_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), bytes) == 1);
  return random;
}

// With its length in front, so that no two lists of fields read the same.
std::string Field(absl::string_view value) { return absl::StrCat(value.size(), ":", value); }

}  // namespace

std::string RandomId(int bytes) { return absl::BytesToHexString(RandomBytes(bytes)); }

RootNamer::RootNamer(const StoreOptions& options)
    : prefix_(absl::StrCat(Field(options.model_fingerprint),
                           Field(base::KvDtypeName(options.kv_dtype)))),
      share_(options.share_prefixes),
      secret_(RandomBytes(32)) {}

std::string RootNamer::Key(absl::string_view principal, const RetentionPolicy& policy,
                           absl::string_view chain) const {
  const std::string text =
      absl::StrCat(absl::StrCat(prefix_, static_cast<int>(policy.kind), ",", policy.sink_tokens,
                                ",", policy.window_tokens, ",", policy.full_layers, ",",
                                policy.kept_pages, ",", policy.epoch_tokens, ";"),
                   chain.empty() ? "" : absl::StrCat("c", Field(chain)),
                   share_ ? "" : absl::StrCat("p", Field(principal)));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TOKEND_CHECK(HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest,
                    &size) != nullptr);
  return std::string(reinterpret_cast<const char*>(digest), size);
}

uint64_t RootNamer::Digest(absl::string_view key) {
  uint64_t digest = 0;
  std::memcpy(&digest, key.data(), sizeof(digest));
  return digest;
}

}  // namespace tokend::kv
