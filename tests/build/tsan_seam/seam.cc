// `seam race` counts without a lock across the seam, `seam clean` under one.
#include <cstdio>
#include <cstring>

#include "core/base/mutex.h"
#include "tests/build/tsan_seam/foreign_thread.h"

namespace tokend {
namespace {

constexpr int kRounds = 10'000;

int g_unguarded = 0;
base::Mutex g_mu;
int g_guarded ABSL_GUARDED_BY(g_mu) = 0;

void CountUnguarded() {
  for (int i = 0; i < kRounds; ++i) ++g_unguarded;
}

void CountGuarded() {
  for (int i = 0; i < kRounds; ++i) {
    base::MutexLock lock(&g_mu);
    ++g_guarded;
  }
}

}  // namespace
}  // namespace tokend

int main(int argc, char** argv) {
  const bool race = argc == 2 && std::strcmp(argv[1], "race") == 0;
  tokend::tests::RunOnTwoForeignThreads(race ? tokend::CountUnguarded : tokend::CountGuarded);
  std::puts("done");
  return 0;
}
