#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "typed.h"

namespace {

using SharedUserScores = typed::Policy<typed::Shared<typed::UserScores>, buzz::TopK>;
using Values = std::vector<float>;
using Rows = std::vector<int>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// What each head keeps of the given scores, [heads, rows].
std::vector<Rows> kept(const Values& scores, int heads, int rows, int heavy) {
  SharedUserScores::Options o;
  o.window = 0;
  o.heavy = heavy;
  SharedUserScores policy(o, heads, rows);
  policy.append(rows);
  policy.give(buzz::view(scores, 1, heads, rows));
  const buzz::KeptRows& keep = policy.select();
  std::vector<Rows> result;
  for (int h = 0; h < heads; ++h) result.emplace_back(keep.rows(h).begin(), keep.rows(h).end());
  return result;
}

TEST(Shared, IsTheSumOverTheHeads) {
  // Alone the heads would keep row 0, 1 and 2; row 3 has the highest sum.
  EXPECT_EQ(kept({9, 0, 0, 5, /**/ 0, 9, 0, 5, /**/ 0, 0, 9, 5}, 3, 4, 1), (std::vector<Rows>{{3}, {3}, {3}}));
}

TEST(Shared, OfOneHeadIsItsOwn) { EXPECT_EQ(kept({1, 5, 3, 4}, 1, 4, 2), (std::vector<Rows>{{1, 3}})); }

TEST(Shared, OfARowThatIsNanToOneHeadIsNan) {
  EXPECT_EQ(kept({1, 1, 1, /**/ kNan, 1, 0}, 2, 3, 2), (std::vector<Rows>{{1, 2}, {1, 2}}));
}

TEST(Shared, KeepsScoresApart) {
  SharedUserScores policy({}, 2, 2);
  policy.append(2);
  const Values scores = {1, 2, /**/ 3, 4};
  policy.give(buzz::view(scores, 1, 2, 2));
  EXPECT_EQ(policy.scores(0)[1], 2);
  EXPECT_EQ(policy.scores(1)[0], 3);
}

TEST(Shared, SecondEvictionsAreNotThoseOfTheFirst) {
  SharedUserScores::Options o;
  o.window = 0;
  o.heavy = 2;
  SharedUserScores policy(o, 2, 4);
  for (Values scores : {Values{4, 3, 2, 1, /**/ 0, 0, 0, 0}, Values{0, 0, 3, 4, /**/ 9, 0, 0, 0}}) {
    policy.append(4 - policy.rows());
    policy.give(buzz::view(scores, 1, 2, 4));
    policy.select();
  }
  for (int h : {0, 1}) EXPECT_EQ(Rows(policy.positions(h).begin(), policy.positions(h).end()), (Rows{0, 5}));
}

TEST(Tova, KeepsWhatTheNewestQueryLooksAtInAllHeads) {
  const typed::Tova::Options o = typed::Tova::Options::for_rows(4);
  EXPECT_EQ(o.sink, 0);
  EXPECT_EQ(o.window, 0);
  EXPECT_EQ(o.heavy, 3);
  typed::Tova policy(o, 2, 1);
  const auto step = [&](const Values& p) {
    policy.append(1);
    policy.observe(buzz::view(p, 2, 1, policy.rows()));
    policy.select();
    return Rows(policy.positions(1).begin(), policy.positions(1).end());
  };
  step({1, /**/ 1});
  step({0.5f, 0.5f, /**/ 0.5f, 0.5f});
  step({0.9f, 0, 0.1f, /**/ 0.9f, 0, 0.1f});
  // Row 0 was looked at most until now; the heads together look at it least.
  EXPECT_EQ(step({0.1f, 0.5f, 0.3f, 0.1f, /**/ 0.1f, 0, 0.2f, 0.7f}), (Rows{1, 2, 3}));
  // Not even the newest row is protected.
  EXPECT_EQ(step({0.5f, 0.25f, 0.25f, 0, /**/ 0.5f, 0.25f, 0.25f, 0}), (Rows{1, 2, 3}));
}

}  // namespace
