#include "buzz/options.h"

#include <gtest/gtest.h>

#include <string>

#include "buzz/policy_list.h"
#include "typed.h"

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
  uses_all<typed::Beehive>();
  uses_all<typed::Strided>();
  uses_all<typed::DiverseBeehive>();
  uses_all<typed::KeyValueBeehive>();
  uses_all<typed::HeavyHitter>();
  uses_all<typed::KeyDiff>();
  uses_all<typed::KeyOutliers>();
  uses_all<typed::Leverage>();
  uses_all<typed::LagKv>();
  uses_all<typed::Calibrated>();
  uses_all<typed::ExpectedAttention>();
  uses_all<typed::TriAttention>();
  uses_all<typed::CapKv>();
  uses_all<typed::Tova>();
  uses_all<typed::SnapKv>();
  uses_all<typed::Streaming>();
  uses_all<typed::Full>();
}

TEST(ForRows, SharesWhatSinkAndCallLeave) {
  const auto o = typed::Options::for_rows(640, 36);  // 600 are left
  EXPECT_EQ(o.sink, 4);
  EXPECT_EQ(o.window, 300);
  EXPECT_EQ(o.threshold, 300);
  const auto fifth = typed::Options::for_rows(640, 36, 0.2);
  EXPECT_EQ(fifth.window, 120);
  EXPECT_EQ(fifth.threshold, 480);
}

TEST(ForRows, IsWhatEachPolicyMakesTheMostOf) {
  const auto streaming = typed::Streaming::Options::for_rows(100);
  EXPECT_EQ(streaming.window, 95);
  EXPECT_EQ(streaming.threshold, 0);
  const auto heavy = typed::HeavyHitter::Options::for_rows(101);
  EXPECT_EQ(heavy.window, 50);
  EXPECT_EQ(heavy.heavy, 50);
  EXPECT_EQ(typed::Tova::Options::for_rows(100).heavy, 99);
  EXPECT_EQ(typed::KeyDiff::Options::for_rows(100).heavy, 99);
  EXPECT_EQ(typed::Full::Options::for_rows(100, 8).capacity, 100);
}

TEST(ForRows, EvictsSeldomWhereScoresTakeLong) {
  const auto expect = [](const auto& o, int middle, int tokens) {
    EXPECT_EQ(o.threshold, middle);
    EXPECT_EQ(o.threshold - o.heavy, tokens);
  };
  expect(buzz::ExpectedAttentionOptions::for_rows(1205), 400, 124);
  expect(buzz::ExpectedAttentionOptions::for_rows(1212, 8), 400, 96);
  expect(buzz::ExpectedAttentionOptions::for_rows(1235, 31), 400, 4);
  expect(buzz::ExpectedAttentionOptions::for_rows(1236, 32), 400, 0);
  expect(buzz::ExpectedAttentionOptions::for_rows(1700, 496), 400, 0);
  expect(buzz::LeverageOptions::for_rows(605), 200, 97);
  expect(buzz::CapKvOptions::for_rows(125), 40, 20);
  expect(buzz::CalibratedOptions::for_rows(2005), 1900, 124);
  expect(buzz::CalibratedOptions::for_rows(1005), 950, 93);
  expect(buzz::CalibratedOptions::for_rows(105), 95, 31);
  expect(buzz::KeyOutliersOptions::for_rows(2005), 400, 31);
}

TEST(ForRows, IsThePeakThatIsReached) {
  auto o = typed::Strided::Options::for_rows(40, 5);
  typed::Strided policy(o, 1, 5);
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
  const auto o = typed::Options::paper();
  EXPECT_EQ(o.sink, 4);
  EXPECT_EQ(o.window, 160);
  EXPECT_EQ(o.threshold, 400);
  EXPECT_EQ(o.stride, 5);
  EXPECT_EQ(o.keep, 1);
  EXPECT_EQ(o.hive, buzz::HiveRule::first);
  EXPECT_EQ(o.attention, buzz::AttentionKind::accumulated);
  EXPECT_EQ(typed::Beehive::capacity(o, 1), 565);
}

TEST(KeyOutliers, HaveFourFifthsOfTheBudgetAsWindow) {
  const auto o = typed::KeyOutliers::Options::for_rows(640, 36);  // 600 are left
  EXPECT_EQ(typed::KeyOutliers::capacity(o, 36), 640);
  EXPECT_EQ(o.sink, 4);
  EXPECT_EQ(o.window, 480);
  EXPECT_EQ(o.heavy, 120);
  EXPECT_EQ(o.threshold, 120) << "every call of 36 tokens evicts";
  const auto decode = typed::KeyOutliers::Options::for_rows(605);  // 600 are left
  EXPECT_EQ(decode.threshold, 120);
  EXPECT_EQ(decode.heavy, 89) << "an eviction in 32 tokens";
  EXPECT_EQ(typed::KeyOutliers::Options::for_rows(11).heavy, 1) << "half of two";
  EXPECT_EQ(o.mean_over, buzz::MeanOver::middle);
}

TEST(Purposes, AreOtherNamesOfPolicies) {
  const std::string sizes = ":rows=100,max_chunk=4";
  for (const buzz::Purpose& purpose : buzz::purposes()) {
    const std::string its = purpose.policy + sizes;
    EXPECT_EQ(buzz::to_text(buzz::policy(purpose.name + sizes)), buzz::to_text(buzz::policy(its))) << purpose.name;
    for (const buzz::PolicyInfo& p : buzz::policies()) EXPECT_STRNE(p.name, purpose.name);
    try {
      buzz::policy("best");
      ADD_FAILURE() << "there is no such policy";
    } catch (const buzz::InvalidArgument& e) {
      EXPECT_NE(std::string(e.what()).find(std::string(", ") + purpose.name), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(buzz::to_text(buzz::fluency()), buzz::to_text(buzz::policy("fluency")));
  buzz::RecallOptions o;
  o.window = 7;
  EXPECT_EQ(buzz::to_text(buzz::recall(o)), buzz::to_text(buzz::policy("recall:window=7")));
}

}  // namespace
