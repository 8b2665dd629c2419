// One story, in which each thing that can fail fails at each of its chances, once
// or from then on.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/engine/errors.h"
#include "core/engine/scheduler.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"
#include "tests/core/kv/store_audit.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT
using base::ErrorReason;

// Those of kv::FaultPoint first.
enum class Where { kTakePages, kAddSession, kSealNode, kPublish, kForward, kCopy, kNowhere };

static_assert(static_cast<int>(Where::kPublish) == static_cast<int>(kv::FaultPoint::kPublish));

struct Fault {
  Where where = Where::kNowhere;
  bool persistent = false;
  int nth = 0;
};

constexpr int kMostSteps = 3000;
constexpr int kPageTokens = 16;
constexpr kv::RetentionPolicy kWindow = {kv::RetentionPolicy::Kind::kSlidingWindow, 2, 20};
constexpr kv::RetentionPolicy kForgetful = {kv::RetentionPolicy::Kind::kSlidingWindow, 2, 6};
constexpr kv::RetentionPolicy kHeavy = {kv::RetentionPolicy::Kind::kHeavyHitters, 2, 9, 0, 1, 16};
constexpr int kAll = 1 << 16;  // more tokens than there are

kv::SessionSpec SpecOf(const std::string& id) {
  if (id == "b") return {.retention = kWindow};
  if (id == "h") return {.retention = kForgetful, .history_tokens = 16};
  if (id == "k") return {.retention = kHeavy};
  return {};
}

class Story {
 public:
  explicit Story(const Fault& fault) : fault_(fault), harness_(Options()) {
    harness_.tags().on_fault = [this](kv::FaultPoint point) {
      return Strike(static_cast<Where>(point));
    };
    harness_.backend().on_forward = [this](const ops::StepBatch&) {
      return Strike(Where::kForward);
    };
    if (fault_.where == Where::kCopy) harness_.backend().fail_copy_in = fault_.nth;
  }

  // Sessions of each kind, one that forgets, and a fork, in a pool for one or two turns.
  void Tell() {
    Submit("a", 20, 20);
    Settle();
    Submit("b", 40, 30);
    Settle();
    Change("c", harness_.store().Fork("p", "a", std::nullopt, "c", std::nullopt));
    Submit("a", 20, 60, 10);
    Submit("c", 25, 60);
    Submit("b", 30, 20);
    Settle();
    for (const int input : {150, 30}) {
      Submit("h", input, 5);
      Submit("k", 25, 15);
      Settle();
    }
    CommitPart();
    Change("a", harness_.store().Rollback("p", "a", 1, std::nullopt));
    Submit("a", 5, 10);
    Settle();
    Submit("a", 10, 10, 35);
    Settle();
    // Takes nearly all pages: the next turn of the window finds nothing left.
    Submit("", 9 * 16, 2);
    Settle();
    Submit("b", 5, 15);
    Settle();
    Submit("h", 5, 5);
    Submit("k", 5, 5);
    Settle();
    CheckVersions();
  }

  // After the story: what was broken is whole again, or the engine is empty.
  void GoOn() {
    const bool broken_before = broken();
    healed_ = true;
    harness_.backend().fail_copy_in = 0;
    if (broken_before) {
      for (const char* id : {"a", "e"}) {
        Request request = Turn(id, 5, 5);
        ++submitted_;
        EXPECT_EQ(base::GetErrorReason(harness_.TrySubmit(std::move(request))),
                  ErrorReason::kDraining);
      }
      harness_.scheduler().WaitUntilEmpty();
    } else {
      for (const char* id : {"a", "b", "c", "d", "h", "k", ""}) {
        const auto sink = Submit(id, 5, 5);
        ASSERT_NE(sink, nullptr);
        Settle();
        EXPECT_TRUE(sink->finished().has_value()) << id;
      }
    }
    CheckVersions();
    const EngineSnapshot snapshot = harness_.scheduler().Snapshot();
    EXPECT_EQ(snapshot.running + snapshot.waiting, 0);
    int ends = 0;
    for (const auto& [label, count] : harness_.counts().ends) ends += count;
    EXPECT_EQ(ends, submitted_);
    LeaveNothing();
  }

  bool fired() {
    if (fault_.where == Where::kCopy && !healed_) fired_ = harness_.backend().fail_copy_in == 0;
    return fired_;
  }
  int failures() const { return failures_; }
  int partial() const { return partial_; }
  int64_t recomputed() const { return recomputed_; }
  Harness& harness() { return harness_; }

 private:
  using Tokens = std::vector<int32_t>;

  static HarnessOptions Options() {
    HarnessOptions options;
    options.backend.page_tokens = kPageTokens;
    options.pages = 3 * 10;
    options.engine.prefill_chunk_tokens = 9;
    options.look_back_tokens = 4;
    return options;
  }

  bool broken() {
    return fired() && (fault_.where == Where::kForward || fault_.where == Where::kCopy);
  }

  absl::Status Strike(Where where) {
    if (where != fault_.where || healed_) return absl::OkStatus();
    ++chances_;
    if (chances_ < fault_.nth || (chances_ > fault_.nth && !fault_.persistent)) {
      return absl::OkStatus();
    }
    fired_ = true;
    if (where == Where::kTakePages) return KvPoolFull("told to fail", std::nullopt);
    return base::MakeError(absl::StatusCode::kInternal, "told to fail",
                           {.reason = ErrorReason::kRequestFailed});
  }

  Request Turn(const std::string& id, int input, int output) {
    Tokens tokens;
    for (int i = 0; i < input; ++i) tokens.push_back(kFirstByte + (7 * ++serial_) % 256);
    Request request = TokensRequest(std::move(tokens), output);
    if (id.empty()) return request;
    request.session = OnSession(id);
    request.session->spec_if_missing = SpecOf(id);
    return request;
  }

  std::shared_ptr<RecordingSink> Submit(const std::string& id, int input, int output,
                                        std::optional<int64_t> from_position = std::nullopt,
                                        CommitMode commit = CommitMode::kOnFinish) {
    Request request = Turn(id, input, output);
    if (!id.empty()) {
      request.session->from_position = from_position;
      request.session->commit = commit;
    }
    const Tokens input_tokens = std::get<TokenInput>(request.input).ids;
    auto sink = std::make_shared<RecordingSink>();
    ++submitted_;
    const absl::Status status = harness_.scheduler().Submit(std::move(request), sink);
    if (!status.ok()) {
      ExpectDue(status);
      EXPECT_FALSE(sink->ended());
      return nullptr;
    }
    running_.push_back({id, input_tokens, sink});
    return sink;
  }

  // Nothing fails before something was made to, and never without a reason.
  void ExpectDue(const absl::Status& status) {
    ++failures_;
    EXPECT_TRUE(fired() && (!healed_ || broken())) << status;
    EXPECT_NE(base::GetErrorReason(status), ErrorReason::kUnspecified) << status;
  }

  void Settle() {
    EXPECT_LT(harness_.RunUntilIdle(kMostSteps), kMostSteps) << "it never ends";
    for (const auto& [id, input, sink] : running_) {
      ASSERT_TRUE(sink->ended());
      if (sink->failed().has_value()) {
        if (!absl::IsCancelled(*sink->failed())) ExpectDue(*sink->failed());
        continue;
      }
      recomputed_ += sink->finished()->usage.recomputed_tokens;
      if (id.empty()) continue;
      // A session that forgets does so at once.
      const int64_t first = sink->started()->output_position;
      Tokens& head = heads_[id];
      head.resize(static_cast<size_t>(first) - input.size());
      head.insert(head.end(), input.begin(), input.end());
      const Tokens output = sink->tokens();
      head.insert(head.end(), output.begin(), output.end());
      Learn(id, first);
    }
    running_.clear();
    Audit();
  }

  // What Fork and Rollback say.
  void Change(const std::string& id, const absl::StatusOr<kv::SessionInfo>& changed) {
    if (changed.ok()) {
      Learn(id, kAll);
    } else {
      ExpectDue(changed.status());
    }
    Audit();
  }

  // The client leaves in the midst of an answer that it wants to keep.
  void CommitPart() {
    const auto sink = Submit("c", 5, 25, std::nullopt, CommitMode::kPartial);
    if (sink == nullptr) return;
    for (int i = 0; i < kMostSteps && !sink->ended() && sink->tokens().size() < 10; ++i) {
      harness_.Step();
    }
    harness_.scheduler().Cancel(sink.get());
    Settle();
    const size_t before = versions_.size();
    if (sink->failed().has_value() && absl::IsCancelled(*sink->failed())) {
      Learn("c", sink->started().has_value() ? sink->started()->output_position : kAll);
    }
    partial_ += versions_.size() > before ? 1 : 0;
  }

  // Keeps the session's head in mind. What was drawn from `first` on must be what
  // the model says without any pages.
  void Learn(const std::string& id, int64_t first) {
    const auto slice = harness_.store().ReadTokens("p", id, std::nullopt, std::nullopt, kAll);
    if (!slice.ok()) return ExpectDue(slice.status());
    const Tokens tokens = Whole(*slice, heads_[id]);
    heads_[id] = tokens;
    const auto key = std::make_pair(id, static_cast<int64_t>(slice->version));
    if (!versions_.emplace(key, tokens).second) return;
    const kv::RetentionPolicy policy = SpecOf(id).retention;
    FakeReference reference(kVocabulary, std::vector<ops::AttentionMask>(3, policy.Mask(0, 0)),
                            {policy.sink_tokens, policy.window_tokens, policy.kept_pages,
                             policy.epoch_tokens, kPageTokens});
    reference.Append(tokens);
    const int vocabulary = std::min(kVocabulary, TinyTokenizer().vocabulary_size());
    for (int64_t p = first; p < reference.size(); ++p) {
      const std::vector<float> logits = reference.Logits(p - 1);
      const auto best = std::max_element(logits.begin(), logits.begin() + vocabulary);
      ASSERT_EQ(tokens[p], best - logits.begin()) << id << ", position " << p;
    }
  }

  // With what the session has forgotten of `known`.
  static Tokens Whole(const kv::TokenSlice& slice, const Tokens& known) {
    Tokens tokens = known;
    tokens.resize(static_cast<size_t>(slice.start));
    tokens.insert(tokens.end(), slice.tokens.begin(), slice.tokens.end());
    return tokens;
  }

  // All that was told, with the same tokens, and nothing else.
  void CheckVersions() {
    std::map<std::pair<std::string, int64_t>, Tokens> found;
    for (const kv::SessionInfo& session : harness_.store().ListSessions("p", "", 1000)) {
      EXPECT_EQ(session.active_turns, 0);
      const auto versions = harness_.store().ListVersions("p", session.id, std::nullopt, 1000);
      ASSERT_TRUE(versions.ok()) << versions.status();
      for (const kv::VersionInfo& version : *versions) {
        const auto number = static_cast<int64_t>(version.number);
        const auto slice = harness_.store().ReadTokens("p", session.id, number, {}, kAll);
        ASSERT_TRUE(slice.ok()) << slice.status();
        found[{session.id, number}] = Whole(*slice, versions_[{session.id, number}]);
      }
    }
    EXPECT_EQ(found, versions_);
  }

  // Without sessions no page has an owner.
  void LeaveNothing() {
    for (const kv::SessionInfo& session : harness_.store().ListSessions("p", "", 1000)) {
      harness_.Delete(session.id);
    }
    harness_.store().Maintain();
    Audit();
    const kv::PageCounts pages = harness_.store().Snapshot().pages;
    EXPECT_EQ(pages.free + pages.cached, pages.total);
  }

  void Audit() {
    for (const std::string& broken : kv::StoreAudit(&harness_.store()).Check()) {
      ADD_FAILURE() << broken;
    }
  }

  const Fault fault_;
  Harness harness_;
  int chances_ = 0;
  bool fired_ = false;
  bool healed_ = false;
  int serial_ = 0;
  int submitted_ = 0;
  int failures_ = 0;
  int partial_ = 0;
  int64_t recomputed_ = 0;
  struct Running {
    std::string id;
    Tokens input;
    std::shared_ptr<RecordingSink> sink;
  };
  std::vector<Running> running_;
  std::map<std::pair<std::string, int64_t>, Tokens> versions_;
  std::map<std::string, Tokens> heads_;  // as they were told last
};

TEST(FaultTest, TheStoryHasAllThatCanFail) {
  Story story({});
  story.Tell();
  EXPECT_EQ(story.failures(), 0);
  EXPECT_EQ(story.partial(), 1);
  EXPECT_GT(story.harness().scheduler().parks(), 0);
  EXPECT_GT(story.harness().backend().copied_pages(), 0);
  EXPECT_GT(story.recomputed(), 0);
  EXPECT_GT(story.harness().store().GetSession("p", "h")->first_position, 0);
  story.GoOn();
}

// At least so many chances there are, or the story is too short.
void FailAtEachChance(Where where, int least) {
  for (const bool persistent : {false, true}) {
    int chances = 0;
    for (bool fired = true; fired; chances += fired ? 1 : 0) {
      SCOPED_TRACE(absl::StrCat(persistent ? "from chance " : "at chance ", chances + 1));
      Story story({where, persistent, chances + 1});
      story.Tell();
      fired = story.fired();
      story.GoOn();
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GE(chances, least);
  }
}

TEST(FaultTest, PagesCannotBeTaken) { FailAtEachChance(Where::kTakePages, 20); }
TEST(FaultTest, ASessionCannotBeAdded) { FailAtEachChance(Where::kAddSession, 3); }
TEST(FaultTest, ANodeCannotBeSealed) { FailAtEachChance(Where::kSealNode, 5); }
TEST(FaultTest, AVersionCannotBePublished) { FailAtEachChance(Where::kPublish, 9); }
TEST(FaultTest, AStepFails) { FailAtEachChance(Where::kForward, 100); }
TEST(FaultTest, ACopyFails) { FailAtEachChance(Where::kCopy, 1); }

// Two that just came back, who may not park each other, find no page where there
// should be some.
TEST(FaultTest, TurnsThatFindNoPagesEndThoughTheyWouldFit) {
  HarnessOptions options;
  options.pages = 3 * 20;
  Harness harness(options);
  const auto first = harness.Submit(TokensRequest(ByteTokens("the first"), 60));
  const auto second = harness.Submit(TokensRequest(ByteTokens("and another"), 60));
  harness.Step(5);
  first->SetWritable(false);
  second->SetWritable(false);
  harness.Step();
  // Needs the whole pool: both give theirs.
  EXPECT_TRUE(harness.Run(TokensRequest(std::vector<int32_t>(19 * 16, 9), 2))->finished());
  EXPECT_EQ(harness.scheduler().parks(), 2);
  harness.tags().on_fault = [](kv::FaultPoint point) {
    return point == kv::FaultPoint::kTakePages ? KvPoolFull("told to fail", std::nullopt)
                                               : absl::OkStatus();
  };
  first->SetWritable(true);
  second->SetWritable(true);
  EXPECT_LT(harness.RunUntilIdle(kMostSteps), kMostSteps);
  for (const auto& sink : {first, second}) {
    ASSERT_TRUE(sink->finished().has_value());
    EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kContextFull);
  }
  harness.tags().on_fault = nullptr;
  EXPECT_TRUE(harness.Run(TokensRequest(ByteTokens("later"), 5))->finished().has_value());
}

}  // namespace
}  // namespace tokend::engine
