#include "core/gguf/fingerprint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "core/base/check.h"

namespace tokend::gguf {
namespace {

using Digest = std::array<unsigned char, 32>;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    TOKEND_CHECK(context_ != nullptr);
    TOKEND_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void Add(const void* data, size_t size) {
    TOKEND_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  void AddNumber(uint64_t value) { Add(&value, sizeof(value)); }
  // With its length, so that no two lists of fields hash alike.
  void AddField(const void* data, size_t size) {
    AddNumber(size);
    Add(data, size);
  }
  Digest Finish() {
    Digest digest;
    TOKEND_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    return digest;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

bool ChangesResults(absl::string_view key) {
  return !absl::StartsWith(key, "general.") || key == "general.architecture" ||
         key == "general.quantization_version";
}

Digest HashTensor(const TensorInfo& tensor) {
  Sha256 hash;
  hash.AddField(tensor.name.data(), tensor.name.size());
  hash.AddNumber(static_cast<uint64_t>(tensor.type));
  for (uint64_t dimension : tensor.shape) hash.AddNumber(dimension);
  hash.AddField(tensor.data.data(), tensor.data.size());
  return hash.Finish();
}

// One digest per tensor, so that they can be computed side by side.
std::vector<Digest> HashTensors(const std::vector<const TensorInfo*>& tensors, int threads) {
  std::vector<Digest> digests(tensors.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tensors.size(); i = next++) digests[i] = HashTensor(*tensors[i]);
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return digests;
}

}  // namespace

std::string Fingerprint(const File& file, int threads) {
  TOKEND_CHECK(threads >= 1);
  std::vector<const MetadataEntry*> entries;
  for (const MetadataEntry& entry : file.metadata()) {
    if (ChangesResults(entry.key)) entries.push_back(&entry);
  }
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : file.tensors()) tensors.push_back(&tensor);
  std::sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->key < b->key; });
  std::sort(tensors.begin(), tensors.end(), [](auto* a, auto* b) { return a->name < b->name; });

  Sha256 hash;
  hash.AddNumber(entries.size());
  for (const MetadataEntry* entry : entries) {
    hash.AddField(entry->key.data(), entry->key.size());
    hash.AddNumber(static_cast<uint64_t>(entry->type));
    hash.AddField(entry->raw.data(), entry->raw.size());
  }
  for (const Digest& digest : HashTensors(tensors, threads)) hash.Add(digest.data(), digest.size());
  const Digest digest = hash.Finish();
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace tokend::gguf
