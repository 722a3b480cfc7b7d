#include "buzz/score/row_scores.h"

#include <gtest/gtest.h>

namespace {

using RowScores = buzz::RowScores<float>;

/// Two heads of `rows` rows that hold 0, 1, 2, ... and 100, 101, 102, ...
RowScores counted(int rows) {
  RowScores scores(2, rows);
  for (int h = 0; h < 2; ++h)
    for (int r = 0; r < rows; ++r) scores.head(h)[r] = static_cast<float>(100 * h + r);
  return scores;
}

std::vector<float> head(const RowScores& scores, int h, int rows) {
  return std::vector<float>(scores.head(h), scores.head(h) + rows);
}

using Values = std::vector<float>;

TEST(RowScores, StartAtZero) { EXPECT_EQ(head(RowScores(2, 3), 1, 3), (Values{0, 0, 0})); }

TEST(RowScores, HeadsLieApart) {
  const RowScores scores = counted(3);
  EXPECT_EQ(head(scores, 0, 3), (Values{0, 1, 2}));
  EXPECT_EQ(head(scores, 1, 3), (Values{100, 101, 102}));
}

TEST(RowScores, ClearsARangeOfEveryHead) {
  RowScores scores = counted(5);
  scores.clear(2, 1, 3);
  EXPECT_EQ(head(scores, 0, 5), (Values{0, 0, 0, 3, 4}));
  EXPECT_EQ(head(scores, 1, 5), (Values{100, 0, 0, 103, 104}));
}

TEST(RowScores, FollowTheKeptRowsOfEachHead) {
  RowScores scores = counted(5);
  buzz::KeptRows keep(2, 5);
  keep.begin(5, 2);
  keep.list(0)[0] = 0;
  keep.list(0)[1] = 4;
  keep.list(1)[0] = 2;
  keep.list(1)[1] = 3;
  scores.compact(keep);
  EXPECT_EQ(head(scores, 0, 2), (Values{0, 4}));
  EXPECT_EQ(head(scores, 1, 2), (Values{102, 103}));
}

TEST(RowScores, BytesAreWhatIsAllocated) { EXPECT_EQ(RowScores(3, 50).bytes(), 3 * 50 * sizeof(float)); }

}  // namespace
