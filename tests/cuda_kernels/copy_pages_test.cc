#include "cuda_kernels/kernels/copy_pages.h"

#include <algorithm>

#include "tests/cuda_kernels/device_array.h"

namespace tokend::cuda {
namespace {

class CopyPagesTest : public DeviceTest {};

TEST_F(CopyPagesTest, CopiesWholePagesAndNothingElse) {
  for (const int64_t page_bytes : {16, 4096, 4112, 10000}) {
    constexpr int64_t kPages = 7;
    std::vector<unsigned char> pages(static_cast<size_t>(kPages * page_bytes));
    for (size_t i = 0; i < pages.size(); ++i)
      pages[i] = static_cast<unsigned char>(i * 31 + i / 256);
    DeviceArray<unsigned char> arena(pages);
    const std::vector<int32_t> from = {6, 0, 0};
    const std::vector<int32_t> to = {1, 5, 2};
    const DeviceArray<int32_t> from_device(from);
    const DeviceArray<int32_t> to_device(to);

    CopyPagesParams params;
    params.arena = arena.data();
    params.page_bytes = page_bytes;
    params.from = from_device.data();
    params.to = to_device.data();
    params.count = 3;
    ASSERT_TRUE(CopyPages(params, nullptr).ok());

    std::vector<unsigned char> expected = pages;
    for (size_t i = 0; i < from.size(); ++i) {
      std::copy_n(pages.begin() + from[i] * page_bytes, page_bytes,
                  expected.begin() + to[i] * page_bytes);
    }
    EXPECT_EQ(arena.Download(), expected);
  }
}

TEST_F(CopyPagesTest, CopiesNothing) {
  CopyPagesParams params;
  params.page_bytes = 16;
  EXPECT_TRUE(CopyPages(params, nullptr).ok());
}

}  // namespace
}  // namespace tokend::cuda
