#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cpu/huge_pages.h"
#include "tests/bench/bench.h"
#include "tests/bench/peaks.h"

namespace tokend::bench {
namespace {

constexpr int64_t kReadChunk = 256 << 10;

// Reads all and returns something that depends on it.
uint64_t ReadBytes(const std::byte* data, int64_t bytes) {
  using Vector = uint64_t __attribute__((vector_size(64)));
  Vector sums[4] = {};
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      Vector value;
      std::memcpy(&value, data + i + j * 64, sizeof(value));
      sums[j] ^= value;
    }
  }
  const Vector all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  return all[0] ^ all[1] ^ all[2] ^ all[3] ^ all[4] ^ all[5] ^ all[6] ^ all[7];
}

// Operations per second of all threads: each calls `loop` often enough that
// handing out the work does not count.
double PeakOpsPerSecond(cpu::ThreadPool* pool, PeakLoop loop) {
  if (loop.run == nullptr) return 0;
  const int64_t chunks = int64_t{8} * pool->threads();
  const double seconds =
      SecondsPerCall([&] { pool->RunPhase(chunks, [&](int64_t, int) { loop.run(); }); });
  return static_cast<double>(chunks) * loop.operations / seconds;
}

}  // namespace

absl::StatusOr<double> ReadBandwidth(cpu::ThreadPool* pool, int64_t bytes) {
  const int64_t chunks = bytes / kReadChunk;
  TOKEND_ASSIGN_OR_RETURN(const cpu::HugeBuffer buffer,
                          cpu::HugeBuffer::Allocate(chunks * kReadChunk));
  std::memset(buffer.data(), 1, static_cast<size_t>(buffer.size()));
  std::atomic<uint64_t> sum{0};
  const double seconds = SecondsPerCall([&] {
    pool->RunPhase(chunks, [&](int64_t chunk, int) {
      sum.fetch_xor(ReadBytes(buffer.data() + chunk * kReadChunk, kReadChunk),
                    std::memory_order_relaxed);
    });
  });
  return static_cast<double>(buffer.size()) / seconds;
}

double Int8PeakOpsPerSecond(cpu::ThreadPool* pool, cpu::Isa isa) {
  return PeakOpsPerSecond(pool, Int8Peak(isa));
}

double F32PeakOpsPerSecond(cpu::ThreadPool* pool, cpu::Isa isa) {
  return PeakOpsPerSecond(pool, F32Peak(isa));
}

absl::Status RunLimits(const Options& options, Report* report) {
  std::vector<int> counts = {1};
  if (options.threads > 1) counts.push_back(options.threads);
  for (const int threads : counts) {
    cpu::ThreadPoolOptions pool_options;
    pool_options.threads = threads;
    TOKEND_ASSIGN_OR_RETURN(const std::unique_ptr<cpu::ThreadPool> pool,
                            cpu::ThreadPool::Create(pool_options));
    const std::string suffix = absl::StrCat("_", threads, "t");
    // What a small model takes, and more than most caches hold.
    for (const int64_t mib : {96, 768}) {
      TOKEND_ASSIGN_OR_RETURN(const double bandwidth, ReadBandwidth(pool.get(), mib << 20));
      report->Add(absl::StrCat("read_", mib, "mib", suffix), bandwidth / 1e9, "GB/s");
    }
    report->Add(absl::StrCat("int8_peak", suffix),
                Int8PeakOpsPerSecond(pool.get(), options.isa) / 1e9, "GOP/s");
    report->Add(absl::StrCat("fp32_peak", suffix),
                F32PeakOpsPerSecond(pool.get(), options.isa) / 1e9, "GFLOP/s");
  }
  constexpr int64_t kProbe = int64_t{64} << 20;
  TOKEND_ASSIGN_OR_RETURN(const cpu::HugeBuffer probe, cpu::HugeBuffer::Allocate(kProbe));
  std::memset(probe.data(), 1, static_cast<size_t>(kProbe));
  report->Add("huge_pages", 100.0 * static_cast<double>(probe.HugePageBytes()) / kProbe, "%");
  return absl::OkStatus();
}

}  // namespace tokend::bench
