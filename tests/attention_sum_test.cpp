#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "typed.h"

namespace {

using buzz::AttentionKind;
using buzz::View;
using typed::HeavyHitter;
using Values = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

static_assert(HeavyHitter::needs_attention && !HeavyHitter::needs_kv, "it asks for probabilities, not for K and V");

/// A policy without sink and window that keeps the two heaviest rows once there are more than six.
HeavyHitter policy(int kv_heads = 1, AttentionKind kind = AttentionKind::accumulated) {
  HeavyHitter::Options o;
  o.window = 0;
  o.heavy = 2;
  o.threshold = 6;
  o.attention = kind;
  return HeavyHitter(o, kv_heads, 8);
}

template <class P>
Values scores(const P& p, int head = 0) {
  return Values(p.scores(head).begin(), p.scores(head).end());
}

template <class P>
std::vector<int> positions(const P& p, int head = 0) {
  return std::vector<int>(p.positions(head).begin(), p.positions(head).end());
}

template <class P>
void observe(P& p, const Values& probabilities, int query_heads = 1, int queries = 1) {
  p.observe(buzz::view(probabilities, query_heads, queries, p.rows()));
}

TEST(AttentionSum, OfANewRowIsZero) {
  HeavyHitter p = policy();
  p.append(2);
  EXPECT_EQ(scores(p), (Values{0, 0}));
}

TEST(AttentionSum, IsTheSumOverAllCalls) {
  HeavyHitter p = policy();
  p.append(2);
  observe(p, {0.25f, 0.75f});
  p.append(1);
  observe(p, {0.5f, 0.125f, 0.375f});
  EXPECT_EQ(scores(p), (Values{0.75f, 0.875f, 0.375f}));
}

TEST(AttentionSum, IsTheSumOverTheQueriesOfACall) {
  HeavyHitter p = policy();
  p.append(3);
  observe(p, {1, 0, 0, /**/ 0.5f, 0.5f, 0, /**/ 0.25f, 0.25f, 0.5f}, 1, 3);
  EXPECT_EQ(scores(p), (Values{1.75f, 0.75f, 0.5f}));
}

TEST(AttentionSum, EightQueryHeadsFeedTwoKvHeadsInNeighbouringFours) {
  HeavyHitter p = policy(2);
  p.append(1);
  observe(p, {1, 2, 4, 8, 16, 32, 64, 128}, 8);
  EXPECT_EQ(scores(p, 0), (Values{1 + 2 + 4 + 8}));
  EXPECT_EQ(scores(p, 1), (Values{16 + 32 + 64 + 128}));
}

TEST(AttentionSum, OfUngroupedHeadsIsTheirOwn) {
  HeavyHitter p = policy(3);
  p.append(1);
  observe(p, {1, 2, 4}, 3);
  for (int h = 0; h < 3; ++h) EXPECT_EQ(scores(p, h), (Values{static_cast<float>(1 << h)}));
}

TEST(AttentionSum, WhatAQueryGivesToALaterRowIsNotRead) {
  HeavyHitter p = policy();
  p.append(4);
  // Two queries: rows 2 and 3. Row 3 comes after the first of them.
  observe(p, {0.25f, 0.25f, 0.5f, 99, /**/ 0.25f, 0.25f, 0.25f, 0.25f}, 1, 2);
  EXPECT_EQ(scores(p), (Values{0.5f, 0.5f, 0.75f, 0.25f}));
}

TEST(AttentionSum, WhatIsNotFiniteAddsNothing) {
  HeavyHitter p = policy();
  p.append(4);
  observe(p, {kNan, kInf, -kInf, 0.5f});
  EXPECT_EQ(scores(p), (Values{0, 0, 0, 0.5f}));
  observe(p, {0.5f, 0.25f, 0.125f, kNan});
  EXPECT_EQ(scores(p), (Values{0.5f, 0.25f, 0.125f, 0.5f}));
}

TEST(AttentionSum, WhatIsNotFiniteInOneQuerySparesTheOthers) {
  HeavyHitter p = policy();
  p.append(2);
  observe(p, {kNan, kNan, /**/ 0.25f, 0.75f}, 2);
  EXPECT_EQ(scores(p), (Values{0.25f, 0.75f}));
}

TEST(AttentionSum, ReadsAStridedView) {
  HeavyHitter p = policy();
  p.append(2);
  const Values padded = {0.25f, 0.75f, 99, 99, 0.5f, 0.5f, 99, 99};  // two query heads, four columns of which two count
  p.observe(View<const float>(padded.data(), 2, 1, 2, 4, 4));
  EXPECT_EQ(scores(p), (Values{0.75f, 1.25f}));
}

TEST(AttentionSum, OfNoQueriesIsNothing) {
  HeavyHitter p = policy();
  p.append(2);
  observe(p, {0.25f, 0.75f});
  p.observe(View<const float>(nullptr, 1, 0, 2));
  EXPECT_EQ(scores(p), (Values{0.25f, 0.75f}));
}

TEST(AttentionSum, MayComeSummed) {
  HeavyHitter p = policy(2);
  p.append(2);
  const Values sums = {1, 2, /**/ 3, 4};
  p.observe_sums(buzz::view(sums, 1, 2, 2));
  p.observe_sums(buzz::view(sums, 1, 2, 2));
  EXPECT_EQ(scores(p, 0), (Values{2, 4}));
  EXPECT_EQ(scores(p, 1), (Values{6, 8}));
}

TEST(AttentionSum, IsExactPastWhatHalvesCanCount) {
  HeavyHitter p = policy();
  p.append(1);
  for (int i = 0; i < 5000; ++i) observe(p, {1});
  EXPECT_EQ(scores(p), (Values{5000}));
}

TEST(AttentionSum, FollowsItsRowThroughAnEviction) {
  HeavyHitter p = policy();
  p.append(7);
  observe(p, {1, 9, 3, 4, 5, 8, 7});
  p.select();
  EXPECT_EQ(positions(p), (std::vector<int>{1, 5}));
  EXPECT_EQ(scores(p), (Values{9, 8}));
}

TEST(AttentionSum, OfARowInAFreedPlaceStartsAtZeroAgain) {
  HeavyHitter p = policy();
  p.append(7);
  observe(p, {1, 9, 3, 4, 5, 8, 7});
  p.select();
  p.append(3);
  EXPECT_EQ(scores(p), (Values{9, 8, 0, 0, 0}));
  p.reset();
  p.append(3);
  EXPECT_EQ(scores(p), (Values{0, 0, 0}));
}

TEST(AttentionSum, HeadsKeepDifferentRows) {
  HeavyHitter p = policy(2);
  p.append(7);
  observe(p, {9, 8, 1, 1, 1, 1, 1, /**/ 1, 1, 1, 1, 1, 8, 9}, 2);
  p.select();
  EXPECT_EQ(positions(p, 0), (std::vector<int>{0, 1}));
  EXPECT_EQ(positions(p, 1), (std::vector<int>{5, 6}));
  EXPECT_EQ(scores(p, 1), (Values{8, 9}));
}

TEST(LatestAttention, IsTheLastCallsAlone) {
  HeavyHitter p = policy(1, AttentionKind::latest);
  p.append(2);
  observe(p, {7, 8});
  p.append(1);
  observe(p, {1, 2, 3, /**/ 4, 5, 6}, 2);
  EXPECT_EQ(scores(p), (Values{5, 7, 9}));
}

TEST(LatestAttention, DecidesAnEviction) {
  HeavyHitter p = policy(1, AttentionKind::latest);
  p.append(6);
  observe(p, {99, 99, 0, 0, 0, 0});
  p.append(1);
  observe(p, {0, 0, 0, 5, 0, 6, 0});
  p.select();
  EXPECT_EQ(positions(p), (std::vector<int>{3, 5}));
}

TEST(NewestAttention, IsTheLastQuerysAlone) {
  HeavyHitter p = policy(1, AttentionKind::newest);
  p.append(3);
  observe(p, {7, 8, 9});
  observe(p, {1, 2, 3, /**/ 4, 5, 6}, 2);
  EXPECT_EQ(scores(p), (Values{5, 7, 9})) << "of both heads of the group";
  observe(p, {1, 2, 99, /**/ 4, 0, 6}, 1, 2);
  EXPECT_EQ(scores(p), (Values{4, 0, 6}));
  const Values sums = {9, 9, 9, /**/ 1, 2, 3};
  p.observe_sums(buzz::view(sums, 2, 1, 3));
  EXPECT_EQ(scores(p), (Values{1, 2, 3}));
}

TEST(LargestAttention, IsTheMostThatOneQueryGave) {
  HeavyHitter p = policy(1, AttentionKind::largest);
  p.append(3);
  observe(p, {7, 8, 1});
  observe(p, {1, 2, 3, /**/ 4, 5, 6}, 2);
  EXPECT_EQ(scores(p), (Values{7, 8, 9})) << "of the group's heads together: 1 + 4, 2 + 5, 3 + 6";
  observe(p, {10, 2, 99, /**/ 6, 7, 8}, 1, 2);
  EXPECT_EQ(scores(p), (Values{10, 8, 9})) << "10 and 6 do not add up";
  const Values sums = {9, 11, 9, /**/ 1, 2, 12};
  p.observe_sums(buzz::view(sums, 2, 1, 3));
  EXPECT_EQ(scores(p), (Values{10, 11, 12}));
}

HeavyHitter decaying(float decay) {
  HeavyHitter::Options o;
  o.window = 0;
  o.heavy = 2;
  o.threshold = 6;
  o.attention = AttentionKind::decayed;
  o.decay = decay;
  return HeavyHitter(o, 1, 8);
}

TEST(DecayedAttention, IsHalvedAtEachQuery) {
  HeavyHitter p = decaying(0.5f);
  p.append(2);
  observe(p, {8, 4});
  observe(p, {1, 0});
  EXPECT_EQ(scores(p), (Values{5, 2}));
  observe(p, {2, 99, /**/ 0, 1}, 1, 2);
  EXPECT_EQ(scores(p), (Values{(2.5f + 2) / 2, 0.5f + 1})) << "two queries of a call are two";
}

TEST(DecayedAttention, IsTheSameInOneCallAndInMany) {
  HeavyHitter one = decaying(0.7f), many = decaying(0.7f);
  one.append(3);
  many.append(3);
  observe(one, {0.1f, 0, 0, /**/ 0.4f, 0.5f, 0, /**/ 0.7f, 0.8f, 0.9f}, 1, 3);
  observe(many, {0.1f, 0, 0});
  observe(many, {0.4f, 0.5f, 0});
  observe(many, {0.7f, 0.8f, 0.9f});
  EXPECT_EQ(scores(one), scores(many));
}

TEST(AttentionSum, SaysWhichQueriesItHasToSeeApart) {
  EXPECT_EQ(policy(1, AttentionKind::accumulated).queries_apart(), 0);
  EXPECT_EQ(policy(1, AttentionKind::newest).queries_apart(), 1);
  for (AttentionKind kind : {AttentionKind::largest, AttentionKind::decayed})
    EXPECT_GE(policy(1, kind).queries_apart(), 1000000);
}

TEST(MeanAttention, OfUniformAttentionIsTheSameForOldAndNew) {
  // Every query gives an eighth to each row that it sees, and one more eighth to row 5: its mean is the highest, though
  // older rows have received more.
  std::vector<int> kept[2];
  for (AttentionKind kind : {AttentionKind::accumulated, AttentionKind::mean}) {
    HeavyHitter p = policy(1, kind);
    for (int n = 1; n <= 7; ++n) {
      p.append(1);
      Values row(static_cast<std::size_t>(n), 0.125f);
      if (n > 5) row[5] += 0.125f;
      observe(p, row);
    }
    p.select();
    kept[kind == AttentionKind::mean] = positions(p);
  }
  EXPECT_EQ(kept[0], (std::vector<int>{0, 1}));
  EXPECT_EQ(kept[1], (std::vector<int>{0, 5})) << "all others are equal, so that the lowest row follows";
}

TEST(MeanAttention, CountsTheTokensSinceTheRowsOwnThroughEvictions) {
  HeavyHitter p = policy(1, AttentionKind::mean);
  p.append(7);
  observe(p, {8, 0, 0, 0, 0, 4, 0});
  p.select();  // leaves positions 0 and 5
  p.append(5);
  observe(p, {0, 0, 3.5f, 0, 0, 0, 0});  // 12 tokens so far; row 2 is position 7
  p.select();
  // 8 / 12 and 3.5 / 5 are more than 4 / 7.
  EXPECT_EQ(positions(p), (std::vector<int>{0, 7}));
  EXPECT_EQ(scores(p), (Values{8, 3.5f})) << "what is kept is the sum";
}

}  // namespace
