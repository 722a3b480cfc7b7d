#include "buzz/select/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "typed.h"

namespace {

using ByUserScores = typed::Policy<typed::UserScores, buzz::TopK>;
using Options = ByUserScores::Options;
using Rows = std::vector<int>;
using Values = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Options options(int heavy, int sink = 0, int window = 0) {
  Options o;
  o.sink = sink;
  o.window = window;
  o.heavy = heavy;
  return o;
}

/// Positions that are left of the given scores, one row each.
Rows left(const Options& o, const Values& scores) {
  const int rows = static_cast<int>(scores.size());
  ByUserScores policy(o, 1, rows);
  policy.append(rows);
  policy.give(buzz::view(scores, 1, 1, rows));
  policy.select();
  return Rows(policy.positions(0).begin(), policy.positions(0).end());
}

TEST(TopK, AreTheHeaviestInAscendingOrder) { EXPECT_EQ(left(options(3), {5, 1, 9, 2, 7, 3}), (Rows{0, 2, 4})); }

TEST(TopK, TiesGoToTheLowestRow) {
  EXPECT_EQ(left(options(2), {1, 1, 1, 1}), (Rows{0, 1}));
  EXPECT_EQ(left(options(3), {1, 2, 1, 2, 1}), (Rows{0, 1, 3}));
}

TEST(TopK, NanLosesAgainstEveryNumber) {
  EXPECT_EQ(left(options(2), {kNan, -kInf, kNan, -7, kNan}), (Rows{1, 3}));
  EXPECT_EQ(left(options(3), {kNan, 1, kNan, kInf, kNan}), (Rows{0, 1, 3}));
  EXPECT_EQ(left(options(2), {kNan, kNan, kNan, kNan}), (Rows{0, 1}));
}

TEST(TopK, NeverTouchSinkAndWindow) {
  EXPECT_EQ(left(options(1, 1, 2), {kNan, 5, 6, 5, -9, kNan}), (Rows{0, 2, 4, 5}));
}

TEST(TopK, StayIfThereAreNoMore) {
  EXPECT_EQ(left(options(4), {1, 2, 3}), (Rows{0, 1, 2}));
  EXPECT_EQ(left(options(3), {1, 2, 3}), (Rows{0, 1, 2}));
}

TEST(TopK, OfZeroAreTheProtectedRowsAlone) { EXPECT_EQ(left(options(0, 1, 2), {1, 2, 3, 4, 5}), (Rows{0, 3, 4})); }

TEST(TopK, ByDefaultAreTakenAtEveryCall) {
  ByUserScores policy(options(3, 1, 2), 1);
  EXPECT_EQ(policy.capacity(), 1 + 2 + 3 + 1);
  for (int i = 1; i <= 20; ++i) {
    policy.append(1);
    EXPECT_EQ(policy.should_evict(), i > 6);
    policy.select();
    EXPECT_EQ(policy.rows(), std::min(i, 6));
  }
}

TEST(TopK, AThresholdMakesEvictionsRarer) {
  Options o = options(3);
  o.threshold = 8;
  ByUserScores policy(o, 1);
  EXPECT_EQ(policy.capacity(), 8 + 1);
  std::vector<int> rows;
  for (int i = 0; i < 16; ++i) {
    policy.append(1);
    policy.select();
    rows.push_back(policy.rows());
  }
  EXPECT_EQ(rows, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 3, 4, 5, 6, 7, 8, 3, 4}));
}

TEST(TopK, AreThoseOfAStableSort) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    Values scores(1 + random() % 40);
    for (float& s : scores) s = random() % 6 == 0 ? kNan : static_cast<float>(random() % 9);
    const int heavy = static_cast<int>(random() % 12);
    Rows order;
    for (int i = 0; i < static_cast<int>(scores.size()); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const float x = scores[static_cast<std::size_t>(a)], y = scores[static_cast<std::size_t>(b)];
      return (buzz::is_nan(x) ? -1.f : x) > (buzz::is_nan(y) ? -1.f : y);
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(heavy)));
    std::sort(order.begin(), order.end());
    EXPECT_EQ(left(options(heavy), scores), order);
  }
}

}  // namespace
