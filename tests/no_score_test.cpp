#include <gtest/gtest.h>

#include <vector>

#include "typed.h"

namespace {

using Rows = std::vector<int>;

/// Positions that an eviction leaves of `rows` rows.
template <class Select>
Rows left(const typename typed::Policy<typed::NoScore, Select>::Options& options, int rows) {
  typed::Policy<typed::NoScore, Select> policy(options, 2, rows);
  policy.append(rows);
  policy.select();
  EXPECT_EQ(Rows(policy.positions(0).begin(), policy.positions(0).end()),
            Rows(policy.positions(1).begin(), policy.positions(1).end()));
  return Rows(policy.positions(0).begin(), policy.positions(0).end());
}

TEST(NoScore, OfChunksKeepsTheFirstRow) {
  typed::Policy<typed::NoScore, buzz::Segments>::Options o;
  o.sink = 1;
  o.window = 2;
  o.threshold = 4;
  o.stride = 3;
  EXPECT_EQ(left<buzz::Segments>(o, 11), (Rows{0, 1, 4, 7, 9, 10}));
}

TEST(NoScore, OfWiderChunksKeepsTheFirstRows) {
  typed::Policy<typed::NoScore, buzz::Segments>::Options o;
  o.sink = o.window = 0;
  o.threshold = 4;
  o.stride = 3;
  o.keep = 2;
  EXPECT_EQ(left<buzz::Segments>(o, 10), (Rows{0, 1, 6, 7}));
}

TEST(NoScore, OfAllKeepsTheOldest) {
  typed::Policy<typed::NoScore, buzz::TopK>::Options o;
  o.sink = 1;
  o.window = 2;
  o.heavy = 3;
  EXPECT_EQ(left<buzz::TopK>(o, 9), (Rows{0, 1, 2, 3, 7, 8}));
}

TEST(NoScore, HasNoScoresToShow) {
  typed::Streaming policy({}, 1);
  policy.append(1);
  EXPECT_EQ(policy.scores(0).size, 0);
  EXPECT_EQ(policy.scores(0).begin(), policy.scores(0).end());
}

TEST(NoScore, AsksForNothing) {
  EXPECT_FALSE(typed::Streaming::needs_attention);
  EXPECT_FALSE(typed::Streaming::needs_kv);
}

}  // namespace
