#include "cuda_kernels/backend/self_test.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ops/half.h"
#include "core/ops/plan.h"
#include "cuda_kernels/backend/packed_weights.h"
#include "cuda_kernels/kernels/matmul.h"
#include "cuda_kernels/runtime/buffer.h"

namespace tokend::cuda {
namespace {

constexpr int kOutputs = 32;
constexpr int kCols = 512;
constexpr int kMaxRows = 130;
constexpr uint16_t kNan = 0x7e00;

// The row that is watched, `at` of `rows`.
struct Placement {
  int rows;
  int at;
};
// Every width of tile, first and last columns among them.
constexpr Placement kPlacements[] = {{2, 1},   {4, 2},   {8, 7},   {9, 8},     {16, 3},
                                     {32, 17}, {33, 32}, {64, 40}, {128, 127}, {130, 129}};

struct Probe {
  DeviceBuffer weights;
  DeviceBuffer rows;    // [kMaxRows, kCols] f16
  DeviceBuffer result;  // [kMaxRows, kOutputs] f32
  DeviceBuffer counter;
  PackedMatrix matrix;
};

std::vector<uint16_t> RandomHalves(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = ops::F32ToF16(normal(random));
  return values;
}

absl::StatusOr<Probe> MakeProbe(const Stream& stream) {
  const std::vector<uint16_t> values = RandomHalves(size_t{kOutputs} * kCols, 1);
  const ops::Matrix source = {base::WeightType::kF16, kOutputs, kCols,
                              reinterpret_cast<const std::byte*>(values.data())};
  std::vector<std::byte> packed(static_cast<size_t>(PackedBytes(source, false, false)));
  TOKEND_RETURN_IF_ERROR(PackWeights(source, false, "self-test", packed.data()));
  const auto bytes = static_cast<int64_t>(packed.size());
  Probe probe;
  TOKEND_ASSIGN_OR_RETURN(probe.weights, DeviceBuffer::Allocate(bytes, "self-test"));
  TOKEND_ASSIGN_OR_RETURN(probe.rows, DeviceBuffer::Allocate(kMaxRows * kCols * 2, "self-test"));
  TOKEND_ASSIGN_OR_RETURN(probe.result,
                          DeviceBuffer::Allocate(kMaxRows * kOutputs * 4, "self-test"));
  TOKEND_ASSIGN_OR_RETURN(probe.counter, DeviceBuffer::Allocate(sizeof(unsigned), "self-test"));
  TOKEND_RETURN_IF_ERROR(
      stream.CopyToDevice(probe.weights.data(), packed.data(), bytes, "self-test"));
  TOKEND_RETURN_IF_ERROR(stream.Synchronize("self-test"));
  probe.matrix = PackedView(source, false, false, probe.weights.as<const unsigned char>());
  return probe;
}

// The watched row's result among neighbours of NaN.
absl::StatusOr<std::vector<float>> RunPlaced(const Probe& probe, const std::vector<uint16_t>& row,
                                             const Placement& placement, const DeviceInfo& device,
                                             const Stream& stream) {
  std::vector<uint16_t> rows(static_cast<size_t>(placement.rows) * kCols, kNan);
  std::memcpy(rows.data() + static_cast<size_t>(placement.at) * kCols, row.data(), kCols * 2);
  TOKEND_RETURN_IF_ERROR(stream.CopyToDevice(probe.rows.data(), rows.data(),
                                             int64_t{placement.rows} * kCols * 2, "self-test"));
  Matmul matmul;
  matmul.rows = placement.rows;
  matmul.input.half = {probe.rows.as<__half>(), nullptr, kCols};
  matmul.segments[0].matrix = probe.matrix;
  matmul.output.out = probe.result.as<float>();
  matmul.output.out_stride = kOutputs;
  matmul.saturations = probe.counter.as<unsigned>();
  TOKEND_RETURN_IF_ERROR(RunMatmul(matmul, device, stream.get()));
  std::vector<float> result(kOutputs);
  TOKEND_RETURN_IF_ERROR(
      stream.CopyToHost(result.data(), probe.result.as<float>() + int64_t{placement.at} * kOutputs,
                        kOutputs * static_cast<int64_t>(sizeof(float)), "self-test"));
  TOKEND_RETURN_IF_ERROR(stream.Synchronize("self-test"));
  return result;
}

}  // namespace

absl::Status CheckRowInvariance(const DeviceInfo& device, const Stream& stream) {
  TOKEND_ASSIGN_OR_RETURN(const Probe probe, MakeProbe(stream));
  const std::vector<uint16_t> row = RandomHalves(kCols, 2);
  TOKEND_ASSIGN_OR_RETURN(const std::vector<float> alone,
                          RunPlaced(probe, row, {1, 0}, device, stream));
  for (const Placement& placement : kPlacements) {
    TOKEND_ASSIGN_OR_RETURN(const std::vector<float> got,
                            RunPlaced(probe, row, placement, device, stream));
    if (std::memcmp(got.data(), alone.data(), alone.size() * sizeof(float)) != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(device.ToString(), ": a row's results depend on its neighbours (row ",
                       placement.at, " of ", placement.rows, "); run with --device cpu"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tokend::cuda
