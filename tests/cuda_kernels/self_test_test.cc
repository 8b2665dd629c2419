// A device on which a row's result depends on its neighbours is refused at start.
#include <string>
#include <vector>

#include "cuda_kernels/backend/cuda_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simt/control.h"
#include "tests/support/random_model.h"

namespace tokend::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SelfTestTest : public ::testing::Test {
 protected:
  SelfTestTest() { simt::ResetDevice(); }
  ~SelfTestTest() override { simt::ResetDevice(); }

  static absl::Status Start() {
    testing::RandomModelOptions tiny;
    tiny.layers = 1;
    tiny.width = tiny.ffn_width = 32;
    tiny.heads = 2;
    tiny.vocabulary_size = 40;
    const testing::RandomModel model(tiny);
    CudaBackendOptions options;
    options.device = OpenDevice(0).value();
    options.max_batch_tokens = 8;
    options.max_sequences = 2;
    return CudaBackend::Create(model.plan(), options).status();
  }

  // The last word is where the first row was that came out differently.
  static void ExpectRefused(const std::string& row) {
    const absl::Status status = Start();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("cuda:0 (SIMT stand-in"), HasSubstr("depend on its neighbours"),
                      HasSubstr(row), HasSubstr("--device cpu")));
  }
};

TEST_F(SelfTestTest, ASoundDeviceStarts) { EXPECT_EQ(Start(), absl::OkStatus()); }

TEST_F(SelfTestTest, SumsInAnotherOrderByColumnAreSeen) {
  simt::SetMmaFault(simt::MmaFault::kColumns);
  ExpectRefused("row 7 of 8");
}

TEST_F(SelfTestTest, ANeighboursNanIsSeen) {
  simt::SetMmaFault(simt::MmaFault::kNeighbours);
  ExpectRefused("row 1 of 2");
}

// Wide tiles sum in another order than narrow ones.
TEST_F(SelfTestTest, AnotherOrderOfWideTilesIsSeen) {
  simt::SetMmaFault(simt::MmaFault::kOrder, "MatmulWide");
  ExpectRefused("of ");
}

}  // namespace
}  // namespace tokend::cuda
