// Session calls on a store without a model, behind little and much context.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/observer.h"
#include "core/base/status_macros.h"
#include "core/kv/session_store.h"
#include "tests/bench/bench.h"
#include "tests/bench/model_bench.h"
#include "tests/support/fake_backend.h"

namespace tokend::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kCalls = 1001;
constexpr int64_t kContexts[] = {100, 100000};
constexpr double kMostMicroseconds = 20;
constexpr char kPrincipal[] = "p";
constexpr char kSession[] = "a";
constexpr char kFork[] = "b";

class StoreBench {
 public:
  // With a session of `tokens` tokens in two versions, all of it with KV.
  static absl::StatusOr<std::unique_ptr<StoreBench>> Create(int64_t tokens) {
    auto bench = std::unique_ptr<StoreBench>(new StoreBench);
    kv::StoreOptions options;
    options.layers = bench->backend_.options().layers;
    options.page_tokens = bench->backend_.options().page_tokens;
    options.pages = options.layers * (tokens / options.page_tokens + 16);
    options.context_tokens = tokens + 1024;
    TOKEND_RETURN_IF_ERROR(bench->backend_.AllocateArena(options.pages));
    TOKEND_ASSIGN_OR_RETURN(bench->store_,
                            kv::SessionStore::Create(options, &bench->backend_, base::RealClock(),
                                                     base::NullObserver()));
    TOKEND_RETURN_IF_ERROR(bench->store_->CreateSession(kPrincipal, kSession, {}).status());
    // Ends with a page: no step wrote rows that the next turn could copy.
    const int64_t first = tokens / 2 / options.page_tokens * options.page_tokens;
    TOKEND_RETURN_IF_ERROR(bench->Turn(first));
    TOKEND_RETURN_IF_ERROR(bench->Turn(tokens - first));
    return bench;
  }

  // Microseconds.
  absl::StatusOr<double> Fork() {
    return MedianOf([this](double* microseconds) {
      TOKEND_RETURN_IF_ERROR(Timed(microseconds, [this] {
        return store_->Fork(kPrincipal, kSession, {}, kFork, {}).status();
      }));
      return store_->DeleteSession(kPrincipal, kFork, {}, false);
    });
  }

  absl::StatusOr<double> Rollback() {
    TOKEND_ASSIGN_OR_RETURN(const kv::SessionInfo info, store_->GetSession(kPrincipal, kSession));
    auto version = static_cast<int64_t>(info.head);
    return MedianOf([this, &version](double* microseconds) {
      --version;  // the head's predecessor
      const absl::Status status = Timed(microseconds, [this, version] {
        return store_->Rollback(kPrincipal, kSession, version, {}).status();
      });
      version += 2;
      return status;
    });
  }

  // The branch that a turn runs on, for a writer that is ready.
  absl::StatusOr<double> Checkout() {
    return MedianOf([this](double* microseconds) -> absl::Status {
      TOKEND_ASSIGN_OR_RETURN(const auto writer,
                              store_->Admit({.principal = kPrincipal, .session_id = kSession}));
      std::unique_ptr<kv::Branch> branch;
      return Timed(microseconds, [&]() -> absl::Status {
        TOKEND_ASSIGN_OR_RETURN(branch, store_->Checkout(writer.get(), {}));
        return absl::OkStatus();
      });
    });
  }

  absl::StatusOr<double> Get() {
    return MedianOf([this](double* microseconds) {
      return Timed(microseconds,
                   [this] { return store_->GetSession(kPrincipal, kSession).status(); });
    });
  }

 private:
  StoreBench() = default;

  // Takes and commits pages; no step runs, for the store never looks into them.
  absl::Status Turn(int64_t tokens) {
    TOKEND_ASSIGN_OR_RETURN(const auto writer,
                            store_->Admit({.principal = kPrincipal, .session_id = kSession}));
    TOKEND_ASSIGN_OR_RETURN(auto branch, store_->Checkout(writer.get(), {}));
    branch->Append(std::vector<int32_t>(static_cast<size_t>(tokens), 1));
    branch->MatchPrefix();
    while (branch->computed() < branch->tokens()) {
      const int64_t rows = std::min<int64_t>(4096, branch->step_rows());
      TOKEND_RETURN_IF_ERROR(branch->Prepare(rows));
      branch->Advance(rows);
    }
    const int64_t end = branch->tokens();
    return store_->Commit(writer.get(), std::move(branch), {.tokens = end}).status();
  }

  static absl::Status Timed(double* microseconds, absl::FunctionRef<absl::Status()> call) {
    const auto start = SteadyClock::now();
    absl::Status status = call();
    *microseconds = std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
    return status;
  }

  // Of single calls, each on a store that is at rest.
  absl::StatusOr<double> MedianOf(absl::FunctionRef<absl::Status(double* microseconds)> call) {
    std::vector<double> samples(kCalls);
    for (double& sample : samples) {
      TOKEND_RETURN_IF_ERROR(call(&sample));
      store_->Maintain();
    }
    return Median(std::move(samples));
  }

  testing::FakeBackend backend_{{}};
  std::unique_ptr<kv::SessionStore> store_;
};

}  // namespace

absl::Status RunStore(const Options&, Report* report) {
  const std::pair<const char*, absl::StatusOr<double> (StoreBench::*)()> calls[] = {
      {"fork", &StoreBench::Fork},
      {"rollback", &StoreBench::Rollback},
      {"checkout", &StoreBench::Checkout},
      {"get", &StoreBench::Get},
  };
  std::string slow;
  for (const int64_t context : kContexts) {
    TOKEND_ASSIGN_OR_RETURN(const auto bench, StoreBench::Create(context));
    for (const auto& [call, measure] : calls) {
      TOKEND_ASSIGN_OR_RETURN(const double microseconds, (bench.get()->*measure)());
      const std::string name = absl::StrCat(call, "_context_", context);
      report->Add(name, microseconds, "us");
      if (microseconds > kMostMicroseconds) absl::StrAppend(&slow, " ", name);
    }
  }
  if (slow.empty()) return absl::OkStatus();
  return absl::InternalError("the median is over 20 us:" + slow);
}

}  // namespace tokend::bench
