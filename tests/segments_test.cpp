#include "buzz/select/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "typed.h"

namespace {

using buzz::HiveRule;
using buzz::Passes;
using buzz::Regions;
using ByUserScores = typed::Policy<typed::UserScores, buzz::Segments>;
using Options = ByUserScores::Options;
using Rows = std::vector<int>;
using Values = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Nothing protected; an eviction at threshold + 1 rows.
Options options(int threshold, int stride) {
  Options o;
  o.sink = o.window = 0;
  o.threshold = threshold;
  o.stride = stride;
  return o;
}

/// One head whose scores are given.
struct Head {
  explicit Head(const Options& o, int max_chunk = 4000) : policy(o, 1, max_chunk) {}

  /// Appends, gives all rows' scores, and evicts if it should. Returns the positions that are left.
  Rows operator()(int tokens, const Values& scores) {
    policy.append(tokens);
    policy.give(buzz::view(scores, 1, 1, policy.rows()));
    policy.select();
    return Rows(policy.positions(0).begin(), policy.positions(0).end());
  }
  /// The same where scores do not matter.
  Rows operator()(int tokens) { return (*this)(tokens, Values(static_cast<std::size_t>(policy.rows() + tokens))); }

  ByUserScores policy;
};

TEST(Segments, AreThePapersByDefault) {
  const Options o;
  EXPECT_EQ(o.sink, 4);
  EXPECT_EQ(o.window, 160);
  EXPECT_EQ(o.threshold, 400);
  EXPECT_EQ(o.stride, 5);
  EXPECT_EQ(o.keep, 1);
  EXPECT_EQ(o.hive_stride, 0);
  EXPECT_EQ(o.hive, HiveRule::first);
  EXPECT_EQ(o.passes, Passes::until_bounded);
}

TEST(Segments, EvictWhenTheMiddlePassesTheThreshold) {
  Options o = options(6, 3);
  o.sink = 2;
  o.window = 3;
  Head head(o);
  head.policy.append(11);
  EXPECT_EQ(head.policy.regions(), (Regions{2, 0, 6, 3}));
  EXPECT_FALSE(head.policy.should_evict());
  head.policy.append(1);
  EXPECT_EQ(head.policy.regions(), (Regions{2, 0, 7, 3}));
  EXPECT_TRUE(head.policy.should_evict());
  head.policy.select();
  EXPECT_EQ(head.policy.regions(), (Regions{2, 3, 0, 3}));
  EXPECT_FALSE(head.policy.should_evict());
}

TEST(Segments, OfUnfilteredRowsLeaveTheHeaviestOfEachChunk) {
  Head head(options(6, 3));
  EXPECT_EQ(head(8, {1, 3, 2, /**/ 9, 8, 7, /**/ 4, 5}), (Rows{1, 3, 7}));
}

TEST(Segments, OfTheHiveLeaveEverySecondRowFromTheFirst) {
  Head head(options(6, 3));
  EXPECT_EQ(head(8, {1, 3, 2, /**/ 9, 8, 7, /**/ 4, 5}), (Rows{1, 3, 7}));
  EXPECT_EQ(head(4, {0, 9, 0, /**/ 0, 5, 0, /**/ 0}), (Rows{1, 7, 9, 11})) << "position 3 goes, whatever its score";
}

TEST(Segments, ThinTheHiveByItsOwnStride) {
  Options o = options(6, 2);
  o.hive_stride = 4;
  Head head(o);
  EXPECT_EQ(head(8), (Rows{0, 2, 4, 6}));
  EXPECT_EQ(head(4), (Rows{0, 8, 10})) << "one of four of the hive, one of two of the unfiltered";
}

TEST(Segments, MayThinTheHiveByItsScores) {
  Options o = options(6, 2);
  o.hive = HiveRule::heaviest;
  Head head(o);
  EXPECT_EQ(head(8), (Rows{0, 2, 4, 6}));
  EXPECT_EQ(head(4, {0, 9, 8, 8, /**/ 1, 2, 4, 3}), (Rows{2, 4, 9, 10}));
}

TEST(Segments, MayThinTheHiveByWiderChunks) {
  Options o = options(6, 2);
  o.hive = HiveRule::heaviest;
  o.keep = 2;
  Head head(o);
  EXPECT_EQ(head(7, {9, 8, 0, 0, /**/ 9, 0, 8}), (Rows{0, 1, 4, 6}));
  EXPECT_EQ(head(4, {0, 0, 8, 9, /**/ 0, 7, 7, 0}), (Rows{4, 6, 8, 9}));
}

TEST(Segments, MayTakeHiveAndUnfilteredTogether) {
  Options o = options(6, 3);
  o.hive = HiveRule::together;
  Head head(o);
  EXPECT_EQ(head(7, {1, 2, 3, /**/ 4, 5, 6, /**/ 7}), (Rows{2, 5, 6}));
  // Seven rows, chunks of three across the border of hive and unfiltered.
  EXPECT_EQ(head(4, {1, 9, 2, /**/ 3, 4, 5, /**/ 6}), (Rows{5, 9, 10}));
}

TEST(Segments, TogetherTakeWiderChunksToo) {
  Options o = options(6, 3);
  o.hive = HiveRule::together;
  o.keep = 2;
  Head head(o);
  EXPECT_EQ(head(8, {0, 8, 9, 0, 0, 0, /**/ 1, 2}), (Rows{1, 2, 7}));
}

TEST(Segments, NeverTouchSinkAndWindow) {
  for (float low : {-1e30f, kNan}) {
    Options o = options(4, 4);
    o.sink = 2;
    o.window = 3;
    Head head(o);
    Values scores(10, 5.f);
    for (std::size_t i : {0u, 1u, 7u, 8u, 9u}) scores[i] = low;
    EXPECT_EQ(head(10, scores), (Rows{0, 1, 2, 6, 7, 8, 9}));
  }
}

TEST(Segments, BoundALongPromptAtOnce) {
  Head head(Options{});
  head(4000);
  // 3836 rows leave 768, more than 400; those leave 256.
  EXPECT_EQ(head.policy.regions(), (Regions{4, 256, 0, 160}));
  EXPECT_LE(head.policy.rows(), 4 + 160 + 400);
}

TEST(Segments, InASinglePassLeaveALongPromptUnbounded) {
  Options o;
  o.passes = Passes::single;
  Head head(o);
  head(4000);
  EXPECT_EQ(head.policy.rows(), 932);
  head(1);
  EXPECT_EQ(head.policy.regions(), (Regions{4, 257, 0, 160})) << "256 of 768 and the one unfiltered row";
}

TEST(Segments, InLaterPassesFollowTheHivesRule) {
  // The first pass leaves 1 3 4 7 9 10 12 15 of 16, the second every second of those, the third of those again.
  const Values scores = {1, 2, 1, 2, 2, 1, 1, 9, 1, 2, 2, 1, 2, 1, 1, 3};
  Options o = options(3, 2);
  EXPECT_EQ(Head(o)(16, scores), (Rows{1, 9}));
  o.hive = HiveRule::heaviest;
  EXPECT_EQ(Head(o)(16, scores), (Rows{7, 15}));
}

TEST(Segments, InManyPassesOfTwoAreATournament) {
  std::mt19937 random(3);
  for (HiveRule rule : {HiveRule::heaviest, HiveRule::together})
    for (int threshold : {32, 16, 8, 4, 2, 1}) {
      Options o = options(threshold, 2);
      o.hive = rule;
      Values scores(64);
      for (float& s : scores) s = static_cast<float>(random() % 50);
      Rows expected;  // the heaviest of each 64 / threshold rows
      for (int begin = 0; begin < 64; begin += 64 / threshold) {
        const auto first = scores.begin() + begin;
        expected.push_back(begin + static_cast<int>(std::max_element(first, first + 64 / threshold) - first));
      }
      EXPECT_EQ(Head(o)(64, scores), expected) << threshold;
    }
}

TEST(Segments, ReachAThresholdOfOne) {
  Head head(options(1, 2));
  for (int n : {1, 2, 17, 1000}) EXPECT_EQ(head(n).size(), 1u);
}

TEST(Segments, KeepAtLeastARowOfAnyMiddle) {
  for (int threshold = 1; threshold <= 8; ++threshold)
    for (int stride = 1; stride <= 9; ++stride)
      for (int rows = 1; rows <= 8; ++rows) EXPECT_GE(Head(options(threshold, stride))(rows).size(), 1u);
}

TEST(Segments, StayBoundedWithStridesOneAndTwo) {
  for (int stride : {1, 2})
    for (HiveRule rule : {HiveRule::first, HiveRule::heaviest}) {
      Options o = options(10, stride);
      o.hive = rule;
      Head head(o, 1);
      EXPECT_EQ(head.policy.capacity(), 11);
      for (int i = 0; i < 2000; ++i) {
        head(1);
        ASSERT_LE(head.policy.rows(), 10);
      }
    }
}

TEST(Segments, StayBoundedInSinglePasses) {
  std::mt19937 random(1);
  for (int max_chunk : {1, 7, 60}) {
    Options o = options(10, 2);
    o.passes = Passes::single;
    Head head(o, max_chunk);
    for (int i = 0; i < 2000; ++i) {
      head(static_cast<int>(random() % static_cast<unsigned>(max_chunk)) + 1);
      ASSERT_LE(head.policy.rows(), head.policy.capacity());
    }
  }
}

TEST(Segments, EvictOnlyNowAndThen) {
  Head head(options(10, 2), 1);
  int evictions = 0;
  for (int i = 0; i < 100; ++i)
    evictions += static_cast<int>(head(1).size()) < 11 && head.policy.regions().unfiltered == 0;
  // At 11 rows, leaving 6; then every five: 3 of the hive's 6 and 3 of 5 unfiltered rows are 6 again.
  EXPECT_EQ(evictions, 1 + (100 - 11) / 5);
}

TEST(Segments, SizesDoNotDependOnTheScores) {
  std::mt19937 random(2);
  for (HiveRule rule : {HiveRule::first, HiveRule::heaviest, HiveRule::together})
    for (int keep : {1, 3}) {
      Options o = options(9, 3);
      o.sink = 1;
      o.window = 2;
      o.hive = rule;
      o.keep = keep;
      Head equal(o), any(o);
      for (int i = 0; i < 300; ++i) {
        const int n = 1 + static_cast<int>(random() % 20);
        Values scores(static_cast<std::size_t>(any.policy.rows() + n));
        for (float& s : scores) s = random() % 5 == 0 ? kNan : static_cast<float>(random() % 100);
        any(n, scores);
        equal(n);
        ASSERT_EQ(any.policy.regions(), equal.policy.regions());
      }
    }
}

TEST(Segments, MayKeepAPartThatIsNoWholeStride) {
  Options o = options(6, 0);
  o.keep = 2;
  o.chunk = 3;
  EXPECT_EQ(Head(o)(8, {1, 3, 2, /**/ 9, 8, 7, /**/ 4, 5}), (Rows{1, 2, 3, 4, 6, 7}));
  o.hive = HiveRule::together;
  Head head(o);
  EXPECT_EQ(head(7, {1, 3, 2, /**/ 9, 8, 7, /**/ 4}), (Rows{1, 2, 3, 4, 6}));
  EXPECT_EQ(head(2, {5, 1, 4, /**/ 1, 2, 3, /**/ 6}), (Rows{1, 3, 6, 7, 8}));
}

TEST(Segments, OfChunksStayBoundedAndEnd) {
  for (int keep = 1; keep <= 9; ++keep)
    for (int chunk = keep + 1; chunk <= keep + 4; ++chunk)
      for (HiveRule rule : {HiveRule::first, HiveRule::together}) {
        Options o = options(10, 0);
        o.keep = keep;
        o.chunk = chunk;
        o.hive = rule;
        Head head(o, 50);
        for (int n : {50, 1, 1, 7, 50, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}) {
          head(n);
          ASSERT_LE(head.policy.rows(), 10);
        }
      }
}

TEST(Segments, LeaveWhatAPromptIsToLeave) {
  for (int unfiltered = 1; unfiltered < 300; unfiltered += 1 + unfiltered / 9)
    for (int left = 1; left <= unfiltered; ++left) {
      Options o = options(unfiltered, 5);
      o.leave(left, unfiltered);
      ASSERT_GE(o.chunk, std::min(8, unfiltered));
      if (left == unfiltered) continue;
      o.threshold = std::max(left, unfiltered / 2);  // an eviction, and one pass will do
      if (o.threshold == unfiltered) continue;
      ASSERT_EQ(Head(o)(unfiltered).size(), static_cast<std::size_t>(left)) << unfiltered;
    }
  Options o;
  o.leave(373, 1000);
  EXPECT_LT(o.chunk, 100) << o.keep << " of " << o.chunk;
}

}  // namespace
