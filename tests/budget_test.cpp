#include "buzz/budget.h"

#include <gtest/gtest.h>

#include <numeric>

#include "oracle_twin.h"
#include "typed.h"

namespace {

using buzz::split_budget;
using oracle::refused;
using Parts = std::vector<long long>;

long long sum(const Parts& parts) { return std::accumulate(parts.begin(), parts.end(), 0LL); }

TEST(SplitBudget, IsInProportion) {
  EXPECT_EQ(split_budget(100, {1, 2, 1}, 0), (Parts{25, 50, 25}));
  EXPECT_EQ(split_budget(103, {1, 2, 1}, 1), (Parts{26, 51, 26})) << "the minimum first, then 100 by weight";
}

TEST(SplitBudget, GivesWhatIsLeftToTheLargestRemainders) {
  EXPECT_EQ(split_budget(10, {1, 1, 1}, 0), (Parts{4, 3, 3})) << "ties go to the first layers";
  EXPECT_EQ(split_budget(10, {1.1, 1, 1.9}, 0), (Parts{3, 2, 5})) << "2.75, 2.5, 4.75";
}

TEST(SplitBudget, OfOneLayerIsAll) {
  for (long long total : {1LL, 7LL, 1000000007LL}) EXPECT_EQ(split_budget(total, {0.3}, 1), (Parts{total}));
}

TEST(SplitBudget, OfTinyTotals) {
  EXPECT_EQ(split_budget(0, {1, 2}, 0), (Parts{0, 0}));
  EXPECT_EQ(split_budget(1, {1, 2}, 0), (Parts{0, 1}));
  EXPECT_EQ(split_budget(3, {1, 1, 1}, 1), (Parts{1, 1, 1})) << "no layer is left with nothing";
  EXPECT_EQ(split_budget(4, {1e-9, 1, 1e9}, 1), (Parts{1, 1, 2}));
}

TEST(SplitBudget, GivesZeroWeightsTheMinimum) {
  EXPECT_EQ(split_budget(21, {0, 3, 0, 4}, 0), (Parts{0, 9, 0, 12}));
  EXPECT_EQ(split_budget(20, {0, 1, 1, 1}, 2), (Parts{2, 6, 6, 6}));
  EXPECT_EQ(split_budget(22, {0, 1, 1, 1}, 2), (Parts{2, 7, 7, 6}));
}

TEST(SplitBudget, SumsExactlyWhateverTheWeights) {
  oracle::Random random(1);
  for (int i = 0; i < 20000; ++i) {
    const int layers = random.in(1, 40);
    std::vector<double> weights;
    for (int l = 0; l < layers; ++l)
      weights.push_back(random.one_in(6) ? 0 : std::exp(20.0 * static_cast<double>(random.real())));
    weights[static_cast<std::size_t>(random.in(0, layers - 1))] = 1;
    const long long minimum = random.in(0, 3), total = layers * minimum + random.in(0, random.one_in(2) ? 50 : 1000000);
    const Parts parts = split_budget(total, weights, minimum);
    ASSERT_EQ(sum(parts), total);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t l = 0; l < parts.size(); ++l) {
      ASSERT_GE(parts[l], minimum);
      const double share =
          static_cast<double>(minimum) + static_cast<double>(total - layers * minimum) * weights[l] / all;
      ASSERT_LT(std::fabs(static_cast<double>(parts[l]) - share), 1 + 1e-6) << "within one of its share";
      ASSERT_TRUE(weights[l] != 0 || parts[l] == minimum);
    }
  }
}

TEST(SplitBudget, SumsExactlyWhereDoublesDoNot) {
  const long long huge = 9007199254740993LL;  // 2^53 + 1
  EXPECT_EQ(sum(split_budget(huge, {1, 1, 1}, 0)), huge);
  EXPECT_EQ(sum(split_budget(std::numeric_limits<long long>::max(), {0.1, 0.2, 0.7}, 1)),
            std::numeric_limits<long long>::max());
}

TEST(SplitBudget, RefusesWhatCannotBeSplit) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refused([] { split_budget(10, {}, 0); }), "layers");
  EXPECT_EQ(refused([] { split_budget(10, {1}, -1); }), "minimum");
  EXPECT_EQ(refused([] { split_budget(-1, {1}, 0); }), "total");
  EXPECT_EQ(refused([] { split_budget(5, {1, 1, 1}, 2); }), "total");
  EXPECT_EQ(refused([] { split_budget(10, {1, -1}, 0); }), "weights");
  EXPECT_EQ(refused([] { split_budget(10, {0, 0}, 0); }), "weights");
  EXPECT_EQ(refused([=] { split_budget(10, {1, nan}, 0); }), "weights");
  EXPECT_EQ(refused([=] { split_budget(10, {1, inf}, 0); }), "weights");
  EXPECT_EQ(refused([] { split_budget(10, {1e308, 1e308}, 0); }), "weights") << "their sum is not finite";
}

TEST(SplitBudget, MakesLayersOfAModel) {
  const Parts thresholds = split_budget(60, {1, 3, 2}, 4);
  std::vector<typed::Options> layers;
  for (long long t : thresholds) {
    layers.emplace_back();
    layers.back().sink = 1;
    layers.back().window = 4;
    layers.back().threshold = static_cast<int>(t);
  }
  typed::Model<float> model({1, 1, 4, 4}, layers);
  int most = 0;
  for (int i = 0; i < model.layers(); ++i) {
    for (int turn = 0; turn < 50; ++turn) {
      feed(model.layer(i), oracle::Text(), 1 + turn % 4);
      ASSERT_LE(model.rows(i), 1 + 4 + thresholds[static_cast<std::size_t>(i)] + 4);
      ASSERT_LE(model.layer(i).regions().middle(), thresholds[static_cast<std::size_t>(i)]);
    }
    most += model.layer(i).capacity();
  }
  EXPECT_EQ(most, 60 + 3 * (1 + 4 + 4)) << "the budget and what is protected";
}

}  // namespace
