#include "buzz/options.h"

#include <gtest/gtest.h>

#include "buzz/policies.h"

namespace {

/// A policy's capacity is the budget, to the row, and some row is left by an eviction.
template <class P>
void uses_all() {
  const int sink = typename P::Options().sink;
  for (int max_chunk : {1, 2, 32}) {
    for (int rows = sink + max_chunk + 1; rows < 200; ++rows) {
      const auto usual = P::Options::for_rows(rows, max_chunk);
      ASSERT_EQ(P::capacity(usual, max_chunk), rows);
      ASSERT_EQ(usual.sink, sink);
      for (double share : {0.0, 0.1, 0.5, 0.9, 1.0}) {
        const auto o = P::Options::for_rows(rows, max_chunk, share);
        ASSERT_EQ(P::capacity(o, max_chunk), rows) << share;
        const int spare = rows - sink - max_chunk;
        ASSERT_TRUE(std::abs(o.window - share * spare) <= 0.5001 || o.window == spare - 1) << o.window;
      }
    }
  }
  EXPECT_EQ(P::capacity(P::Options::for_rows(1000000, 512), 512), 1000000);
}

TEST(ForRows, UsesTheWholeBudgetInEveryPolicy) {
  uses_all<buzz::Beehive>();
  uses_all<buzz::Strided>();
  uses_all<buzz::DiverseBeehive>();
  uses_all<buzz::KeyValueBeehive>();
  uses_all<buzz::HeavyHitter>();
  uses_all<buzz::KeyDiff>();
  uses_all<buzz::KeyOutliers>();
  uses_all<buzz::Tova>();
  uses_all<buzz::SnapKv>();
  uses_all<buzz::Streaming>();
  uses_all<buzz::Full>();
}

TEST(ForRows, SharesWhatSinkAndCallLeave) {
  const auto o = buzz::Options::for_rows(640, 36);  // 600 are left
  EXPECT_EQ(o.sink, 4);
  EXPECT_EQ(o.window, 300);
  EXPECT_EQ(o.threshold, 300);
  const auto fifth = buzz::Options::for_rows(640, 36, 0.2);
  EXPECT_EQ(fifth.window, 120);
  EXPECT_EQ(fifth.threshold, 480);
}

TEST(ForRows, IsWhatEachPolicyMakesTheMostOf) {
  const auto streaming = buzz::Streaming::Options::for_rows(100);
  EXPECT_EQ(streaming.window, 95);
  EXPECT_EQ(streaming.threshold, 0);
  const auto heavy = buzz::HeavyHitter::Options::for_rows(101);
  EXPECT_EQ(heavy.window, 50);
  EXPECT_EQ(heavy.heavy, 50);
  EXPECT_EQ(buzz::Tova::Options::for_rows(100).heavy, 99);
  EXPECT_EQ(buzz::KeyDiff::Options::for_rows(100).heavy, 99);
  EXPECT_EQ(buzz::Full::Options::for_rows(100, 8).capacity, 100);
}

TEST(ForRows, IsThePeakThatIsReached) {
  auto o = buzz::Strided::Options::for_rows(40, 5);
  buzz::Strided policy(o, 1, 5);
  int peak = 0;
  for (int i = 0; i < 200; ++i) {
    policy.append(5);
    peak = std::max(peak, policy.rows());
    policy.select();
  }
  EXPECT_LE(peak, 40);
  EXPECT_GT(peak, 35);
}

TEST(Paper, HasItsSizes) {
  const auto o = buzz::Options::paper();
  EXPECT_EQ(o.sink, 4);
  EXPECT_EQ(o.window, 160);
  EXPECT_EQ(o.threshold, 400);
  EXPECT_EQ(o.stride, 5);
  EXPECT_EQ(o.keep, 1);
  EXPECT_EQ(o.hive, buzz::HiveRule::first);
  EXPECT_EQ(o.mass, buzz::MassKind::accumulated);
  EXPECT_EQ(buzz::Beehive::capacity(o, 1), 565);
}

TEST(KeyOutliers, HaveFourFifthsOfTheBudgetAsWindow) {
  const auto o = buzz::KeyOutliers::Options::for_rows(640, 36);  // 600 are left
  EXPECT_EQ(buzz::KeyOutliers::capacity(o, 36), 640);
  EXPECT_EQ(o.sink, 4);
  EXPECT_EQ(o.window, 480);
  EXPECT_EQ(o.heavy, 120);
  EXPECT_EQ(o.threshold, 120) << "every call of 36 tokens evicts";
  const auto decode = buzz::KeyOutliers::Options::for_rows(605);  // 600 are left
  EXPECT_EQ(decode.threshold, 120);
  EXPECT_EQ(decode.heavy, 89) << "an eviction in 32 tokens";
  EXPECT_EQ(buzz::KeyOutliers::Options::for_rows(11).heavy, 1) << "half of two";
  EXPECT_EQ(o.mean_over, buzz::MeanOver::middle);
}

}  // namespace
