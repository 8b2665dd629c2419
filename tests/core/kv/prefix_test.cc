// Prefix reuse: what is lent, to whom, and what is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

// Tokens reused by a turn without a session on `tokens`.
int64_t Cached(KvHarness* harness, const Tokens& tokens, absl::string_view principal = "p") {
  auto branch = harness->store().CheckoutEphemeral(principal);
  branch->Append(tokens);
  branch->MatchPrefix();
  EXPECT_TRUE(harness->Compute(branch.get()).ok());
  EXPECT_EQ(branch->stats().recomputed_tokens, 0);
  return branch->stats().cached_tokens;
}

TEST(PrefixTest, AHitEndsAtTheLastTokenButOne) {
  for (int size = 1; size < 20; ++size) {
    KvHarness harness;
    EXPECT_EQ(Cached(&harness, SomeTokens(size)), 0);
    harness.store().Maintain();
    // The tail of a turn without a session is no node: whole nodes are kept.
    EXPECT_EQ(Cached(&harness, SomeTokens(size)), std::min(size - 1, size / 4 * 4));
    harness.Audit();
  }
}

TEST(PrefixTest, RowsOfAPartlyEqualNodeAreCopied) {
  KvHarness harness;
  const Tokens tokens = SomeTokens(12);
  Cached(&harness, tokens);
  const int64_t copies = harness.observer().copies;
  for (int differs = 0; differs < 11; ++differs) {
    Tokens other = tokens;
    other[differs] = (other[differs] + 1) % kVocabulary;
    EXPECT_EQ(Cached(&harness, other), differs);
    harness.Audit();
  }
  EXPECT_GT(harness.observer().copies, copies);
}

TEST(PrefixTest, ACommittedTailIsADonor) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Turn("a", SomeTokens(7)).ok());
  EXPECT_EQ(Cached(&harness, Concat(SomeTokens(7), {1, 2, 3})), 7);
  harness.Audit();
}

TEST(PrefixTest, TheDonorIsLeasedUntilItIsCopiedOrTaken) {
  StoreOptions options = SmallOptions();
  options.pages = 12;
  KvHarness harness(options);
  Cached(&harness, SomeTokens(8));
  auto branch = harness.store().CheckoutEphemeral("p");
  branch->Append(Concat(SomeTokens(6), {31, 30, 29}));
  branch->MatchPrefix();
  EXPECT_EQ(branch->computed(), 6);
  // Another takes all that can be had, and cannot have the donor.
  auto other = harness.store().CheckoutEphemeral("p");
  other->Append(SomeTokens(20, 9));
  other->MatchPrefix();
  EXPECT_TRUE(other->Prepare(8).ok());
  EXPECT_FALSE(other->Prepare(12).ok());
  // No room for a copy: the donor's pages are the branch's own from now on.
  EXPECT_TRUE(branch->Prepare(1).ok());
  harness.Audit();
  EXPECT_FALSE(branch->Prepare(3).ok());
  other.reset();
  EXPECT_TRUE(harness.Compute(branch.get()).ok());
  harness.Audit();
}

TEST(PrefixTest, CollidingDigestsAreToldApart) {
  // Every digest of a level is equal: tokens alone tell nodes apart, in
  // ancestors too.
  StoreOptions options = SmallOptions();
  options.pages = 3000;
  options.digest_bits = 0;
  KvHarness harness(options);
  std::minstd_rand random(3);
  std::vector<Tokens> prompts;
  for (int i = 0; i < 30; ++i) {
    Tokens prompt = SomeTokens(16);
    // Blocks that differ in an ancestor and agree below, and the other way round.
    prompt[random() % 16] = static_cast<int32_t>(random() % kVocabulary);
    prompts.push_back(prompt);
    EXPECT_LT(Cached(&harness, prompt), 16);
    harness.Audit();
  }
  for (const Tokens& prompt : prompts) {
    EXPECT_EQ(Cached(&harness, prompt), 15);
    harness.Audit();
  }
}

TEST(PrefixTest, PrincipalsDoNotMeet) {
  KvHarness harness;
  const Tokens tokens = SomeTokens(16);
  Cached(&harness, tokens, "p");
  EXPECT_EQ(Cached(&harness, tokens, "q"), 0);
  EXPECT_EQ(Cached(&harness, tokens, "q"), 15);
  harness.Audit();
}

TEST(PrefixTest, StepsHaveTheSameShapesWithAndWithoutAnotherTenantsCache) {
  const auto shapes = [](bool other_tenant) {
    KvHarness harness;
    if (other_tenant) Cached(&harness, SomeTokens(20), "q");
    const int64_t rows = harness.backend().rows();
    const int64_t copies = harness.backend().copied_pages();
    Cached(&harness, SomeTokens(20), "p");
    return std::make_pair(harness.backend().rows() - rows,
                          harness.backend().copied_pages() - copies);
  };
  EXPECT_EQ(shapes(false), shapes(true));
}

TEST(PrefixTest, PrincipalsMeetWhereTheOperatorSaysSo) {
  StoreOptions options = SmallOptions();
  options.share_prefixes = true;
  KvHarness harness(options);
  Cached(&harness, SomeTokens(16), "p");
  EXPECT_EQ(Cached(&harness, SomeTokens(16), "q"), 15);
}

TEST(PrefixTest, PoliciesDoNotMeet) {
  KvHarness harness;
  Cached(&harness, SomeTokens(16));
  for (int64_t window : {6, 7}) {
    const std::string id = absl::StrCat("w", window);
    ASSERT_TRUE(harness.Create(id, {RetentionPolicy::Kind::kSlidingWindow, 0, window}).ok());
    ASSERT_TRUE(harness.Turn(id, SomeTokens(16)).ok());
    EXPECT_EQ(harness.last_stats().cached_tokens, 0);
  }
  harness.Audit();
}

TEST(PrefixTest, AWindowedHitNeedsTheLastWindowAndTheSinks) {
  KvHarness harness;
  const RetentionPolicy policy = {RetentionPolicy::Kind::kSlidingWindow, 3, 8};
  ASSERT_TRUE(harness.Create("a", policy).ok());
  ASSERT_TRUE(harness.Create("b", policy).ok());
  ASSERT_TRUE(harness.Create("c", policy).ok());
  const Tokens tokens = SomeTokens(40);
  ASSERT_TRUE(harness.Turn("a", tokens).ok());
  // b's prompt goes on from where a's window is: positions 33 to 39 and sinks.
  ASSERT_TRUE(harness.Turn("b", Concat(tokens, {1, 2, 3})).ok());
  EXPECT_EQ(harness.last_stats().cached_tokens, 3 + 7);
  harness.Audit();
  // c's prompt ends where the window before it is long gone.
  ASSERT_TRUE(harness.Turn("c", Tokens(tokens.begin(), tokens.begin() + 20)).ok());
  EXPECT_EQ(harness.last_stats().cached_tokens, 4) << "the sinks' node alone";
  harness.Audit();
}

TEST(PrefixTest, TwoWhoComputeTheSameKeepOneCopy) {
  KvHarness harness;
  auto first = harness.store().CheckoutEphemeral("p");
  auto second = harness.store().CheckoutEphemeral("p");
  for (Branch* branch : {first.get(), second.get()}) {
    branch->Append(SomeTokens(17));
    branch->MatchPrefix();
    EXPECT_EQ(branch->computed(), 0);
  }
  for (int64_t end = 1; end <= 17; ++end) {
    ASSERT_TRUE(harness.Compute(first.get(), 1, end).ok());
    ASSERT_TRUE(harness.Compute(second.get(), 1, end).ok());
    harness.Audit();
  }
  const PageCounts pages = harness.store().Snapshot().pages;
  EXPECT_EQ(pages.shared, 4 * 3);
  EXPECT_EQ(pages.private_pages, 2 * 3);
}

}  // namespace
}  // namespace tokend::kv
