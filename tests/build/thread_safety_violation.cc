// Must not compile under clang's -Wthread-safety -Werror.
#include "core/base/mutex.h"

namespace tokend {

class Counter {
 public:
  void Increment() { ++value_; }

 private:
  base::Mutex mu_;
  int value_ ABSL_GUARDED_BY(mu_) = 0;
};

void Use(Counter* counter) { counter->Increment(); }

}  // namespace tokend
