// Device memory of a test, typed and guarded. Written against the CUDA runtime alone:
// the same on a device and on the stand-in.
#ifndef TOKEND_TESTS_CUDA_KERNELS_DEVICE_ARRAY_H_
#define TOKEND_TESTS_CUDA_KERNELS_DEVICE_ARRAY_H_

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tokend::cuda {

// `count` elements on the device between two guards of kGuardBytes. Every byte is
// 0xff before something is written: a NaN in every float format.
template <typename T>
class DeviceArray {
 public:
  static constexpr size_t kGuardBytes = 256;  // keeps the alignment of cudaMalloc

  explicit DeviceArray(size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes() + 2 * kGuardBytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(memory_, kFill, bytes() + 2 * kGuardBytes), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    Upload(values);
  }
  // Fails the test when something was written outside.
  ~DeviceArray() {
    if (memory_ == nullptr) return;
    ExpectGuards();
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
  }
  DeviceArray(DeviceArray&& other) noexcept : memory_(other.memory_), count_(other.count_) {
    other.memory_ = nullptr;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return reinterpret_cast<T*>(static_cast<unsigned char*>(memory_) + kGuardBytes); }
  const T* data() const { return const_cast<DeviceArray*>(this)->data(); }
  size_t size() const { return count_; }

  void Upload(const std::vector<T>& values) {
    ASSERT_EQ(values.size(), count_);
    if (count_ == 0) return;
    EXPECT_EQ(cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }

  // Waits for the device.
  std::vector<T> Download() const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<T> values(count_);
    if (count_ != 0) {
      EXPECT_EQ(cudaMemcpy(values.data(), data(), bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    }
    return values;
  }

  void ExpectGuards() const {
    std::vector<unsigned char> guards(2 * kGuardBytes);
    const auto* memory = static_cast<const unsigned char*>(memory_);
    cudaMemcpy(guards.data(), memory, kGuardBytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(guards.data() + kGuardBytes, memory + kGuardBytes + bytes(), kGuardBytes,
               cudaMemcpyDeviceToHost);
    EXPECT_THAT(guards, testing::Each(kFill)) << "something was written outside the array";
  }

 private:
  static constexpr unsigned char kFill = 0xff;

  size_t bytes() const { return count_ * sizeof(T); }

  void* memory_ = nullptr;
  size_t count_;
};

// Every op test's fixture: skipped, visibly, where there is no device.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
  }
};

}  // namespace tokend::cuda

#endif  // TOKEND_TESTS_CUDA_KERNELS_DEVICE_ARRAY_H_
