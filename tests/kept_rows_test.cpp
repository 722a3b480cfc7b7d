#include "buzz/kept_rows.h"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

using buzz::KeptRows;
using buzz::View;
using Rows = std::vector<int>;

/// KeptRows over `from` rows, the kept rows of each head given.
KeptRows keeping(int from, const std::vector<Rows>& heads) {
  KeptRows keep(static_cast<int>(heads.size()), from);
  keep.begin(from, static_cast<int>(heads[0].size()));
  for (std::size_t h = 0; h < heads.size(); ++h)
    for (std::size_t i = 0; i < heads[h].size(); ++i) keep.list(static_cast<int>(h))[i] = heads[h][i];
  return keep;
}

/// Runs as "from>to*count".
std::string runs(const KeptRows& keep, int head = 0) {
  std::string text;
  keep.for_each_run(head, [&](int from, int to, int count) {
    text += std::to_string(from) + ">" + std::to_string(to) + "*" + std::to_string(count) + " ";
  });
  return text;
}

/// Gaps as "begin-end", end not included.
std::string gaps(const KeptRows& keep, int head = 0) {
  std::string text;
  keep.for_each_gap(head, [&](int begin, int end) { text += std::to_string(begin) + "-" + std::to_string(end) + " "; });
  return text;
}

/// `rows` rows of `dim` values: 10 * row + place in the row + 1000 * head.
std::vector<float> counted(int heads, int rows, int dim) {
  std::vector<float> v;
  for (int h = 0; h < heads; ++h)
    for (int r = 0; r < rows; ++r)
      for (int d = 0; d < dim; ++d) v.push_back(static_cast<float>(1000 * h + 10 * r + d));
  return v;
}

TEST(KeptRows, OfNothingIsEmpty) {
  const KeptRows keep;
  EXPECT_EQ(keep.heads(), 0);
  EXPECT_EQ(keep.from(), 0);
  EXPECT_EQ(keep.size(), 0);
}

TEST(KeptRows, GivesTheRowsOfEachHead) {
  const KeptRows keep = keeping(6, {{0, 3, 5}, {1, 2, 5}});
  EXPECT_EQ(keep.heads(), 2);
  EXPECT_EQ(keep.from(), 6);
  EXPECT_EQ(keep.size(), 3);
  EXPECT_EQ(Rows(keep.rows(0).begin(), keep.rows(0).end()), (Rows{0, 3, 5}));
  EXPECT_EQ(Rows(keep.rows(1).begin(), keep.rows(1).end()), (Rows{1, 2, 5}));
}

TEST(KeepWalk, AllKeptIsOneRunThatStays) {
  const KeptRows keep = keeping(4, {{0, 1, 2, 3}});
  EXPECT_EQ(runs(keep), "0>0*4 ");
  EXPECT_EQ(gaps(keep), "");
}

TEST(KeepWalk, NoneKeptIsOneGap) {
  const KeptRows keep = keeping(4, {{}});
  EXPECT_EQ(runs(keep), "");
  EXPECT_EQ(gaps(keep), "0-4 ");
}

TEST(KeepWalk, AlternatingRowsAreRunsOfOne) {
  EXPECT_EQ(runs(keeping(6, {{0, 2, 4}})), "0>0*1 2>1*1 4>2*1 ");
  EXPECT_EQ(gaps(keeping(6, {{0, 2, 4}})), "1-2 3-4 5-6 ");
  EXPECT_EQ(runs(keeping(6, {{1, 3, 5}})), "1>0*1 3>1*1 5>2*1 ");
  EXPECT_EQ(gaps(keeping(6, {{1, 3, 5}})), "0-1 2-3 4-5 ");
}

TEST(KeepWalk, NeighboursMoveTogether) {
  const KeptRows keep = keeping(10, {{0, 1, 4, 5, 6, 9}});
  EXPECT_EQ(runs(keep), "0>0*2 4>2*3 9>5*1 ");
  EXPECT_EQ(gaps(keep), "2-4 7-9 ");
}

TEST(KeepWalk, AnEmptyCacheHasNeither) {
  const KeptRows keep = keeping(0, {{}});
  EXPECT_EQ(runs(keep), "");
  EXPECT_EQ(gaps(keep), "");
}

TEST(KeepWalk, OneRow) {
  EXPECT_EQ(runs(keeping(1, {{0}})), "0>0*1 ");
  EXPECT_EQ(gaps(keeping(1, {{0}})), "");
  EXPECT_EQ(gaps(keeping(1, {{}})), "0-1 ");
}

TEST(KeepWalk, HeadsHaveTheirOwn) {
  const KeptRows keep = keeping(4, {{0, 1}, {2, 3}});
  EXPECT_EQ(runs(keep, 0), "0>0*2 ");
  EXPECT_EQ(runs(keep, 1), "2>0*2 ");
  EXPECT_EQ(gaps(keep, 0), "2-4 ");
  EXPECT_EQ(gaps(keep, 1), "0-2 ");
}

TEST(KeepWalk, RunsAndGapsCoverEveryRowOnce) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int from = static_cast<int>(random() % 30);
    Rows kept;
    for (int r = 0; r < from; ++r)
      if (random() % 3 != 0) kept.push_back(r);
    const KeptRows keep = keeping(from, {kept});
    Rows walked, times(static_cast<std::size_t>(from));
    keep.for_each_run(0, [&](int begin, int to, int count) {
      EXPECT_EQ(to, static_cast<int>(walked.size()));
      for (int r = begin; r < begin + count; ++r) {
        walked.push_back(r);
        ++times[static_cast<std::size_t>(r)];
      }
    });
    keep.for_each_gap(0, [&](int begin, int end) {
      EXPECT_LT(begin, end);
      for (int r = begin; r < end; ++r) ++times[static_cast<std::size_t>(r)];
    });
    EXPECT_EQ(walked, kept);
    EXPECT_EQ(times, Rows(static_cast<std::size_t>(from), 1));
  }
}

TEST(Compact, MovesEachHeadsOwnRows) {
  std::vector<float> v = counted(2, 4, 2);
  buzz::compact(keeping(4, {{0, 3}, {1, 2}}), buzz::view(v, 2, 4, 2));
  const std::vector<float> expected = {0,    1,    30,   31,   20,   21,   30,   31,     // rows 0 and 3 of head 0
                                       1010, 1011, 1020, 1021, 1020, 1021, 1030, 1031};  // rows 1 and 2 of head 1
  EXPECT_EQ(v, expected);
}

TEST(Compact, LeavesRowsPastTheKeptAsTheyAre) {
  std::vector<float> v = counted(1, 5, 1);
  buzz::compact(keeping(5, {{3, 4}}), buzz::view(v, 1, 5, 1));
  EXPECT_EQ(v, (std::vector<float>{30, 40, 20, 30, 40}));
}

TEST(Compact, OfAllOrNoneChangesNothing) {
  std::vector<float> v = counted(1, 4, 3);
  buzz::compact(keeping(4, {{0, 1, 2, 3}}), buzz::view(v, 1, 4, 3));
  EXPECT_EQ(v, counted(1, 4, 3));
  buzz::compact(keeping(4, {{}}), buzz::view(v, 1, 4, 3));
  EXPECT_EQ(v, counted(1, 4, 3));
}

TEST(Compact, OfOneHeadTouchesNoOther) {
  std::vector<float> v = counted(2, 3, 1);
  const KeptRows keep = keeping(3, {{1, 2}, {0, 2}});
  buzz::compact(keep, 1, View<float>(v.data() + 3, 1, 3, 1));
  EXPECT_EQ(v, (std::vector<float>{0, 10, 20, 1000, 1020, 1020}));
}

TEST(Compact, TakesAViewOfTheWholeCapacity) {
  std::vector<float> v = counted(2, 6, 1);  // 4 of 6 rows are in use
  buzz::compact(keeping(4, {{1, 3}, {0, 2}}), buzz::view(v, 2, 6, 1));
  EXPECT_EQ(v, (std::vector<float>{10, 30, 20, 30, 40, 50, 1000, 1020, 1020, 1030, 1040, 1050}));
}

TEST(Compact, OverlappingMovesLoseNothing) {
  std::vector<float> v = counted(1, 8, 1);
  buzz::compact(keeping(8, {{1, 2, 3, 4, 5, 6, 7}}), buzz::view(v, 1, 8, 1));
  EXPECT_EQ(v, (std::vector<float>{10, 20, 30, 40, 50, 60, 70, 70}));
}

TEST(Compact, StaysInsideTheRowsOfAStridedView) {
  constexpr int stride = 5, dim = 3;  // two values of padding a row
  std::vector<float> v = counted(2, 4, stride), expected = v;
  const KeptRows keep = keeping(4, {{0, 2, 3}, {1, 2, 3}});
  buzz::compact(keep, View<float>(v.data(), 2, 4, dim, 4 * stride, stride));
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < keep.size(); ++i)
      for (int d = 0; d < dim; ++d)
        expected[static_cast<std::size_t>((h * 4 + i) * stride + d)] =
            static_cast<float>(1000 * h + 10 * keep.rows(h)[i] + d);
  EXPECT_EQ(v, expected);
}

TEST(Compact, MovesRowsOfAnySize) {
  // Whole cache lines, parts of them, and runs too long to be moved by lines.
  std::mt19937 random(4);
  for (int dim : {1, 3, 16, 17, 32, 64, 100, 128, 256, 300})
    for (int round = 0; round < 40; ++round) {
      const int from = 1 + static_cast<int>(random() % 60);
      Rows kept;
      for (int r = 0; r < from; ++r)
        if (round % 2 == 0 ? random() % 4 == 0 : random() % 20 != 0) kept.push_back(r);
      std::vector<float> rows(static_cast<std::size_t>(from * dim));
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
      std::vector<float> expected = rows;
      for (std::size_t r = 0; r < kept.size(); ++r)
        for (int i = 0; i < dim; ++i)
          expected[r * static_cast<std::size_t>(dim) + static_cast<std::size_t>(i)] =
              static_cast<float>(kept[r] * dim + i);
      buzz::compact(keeping(from, {kept}), buzz::view(rows, 1, from, dim));
      ASSERT_EQ(rows, expected) << "dim " << dim;
    }
}

TEST(Compact, OfTokenMajorRows) {
  // [rows 3, heads 2, dim 1], seen as [heads, rows, dim].
  std::vector<float> v = {0, 1000, 10, 1010, 20, 1020};
  buzz::compact(keeping(3, {{0, 2}, {1, 2}}), View<float>(v.data(), 2, 3, 1, 1, 2));
  EXPECT_EQ(v, (std::vector<float>{0, 1010, 20, 1020, 20, 1020}));
}

TEST(Compact, NeitherReadsNorWritesUnusedRows) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> v = {0, 10, 20, nan, nan};
  buzz::compact(keeping(3, {{0, 2}}), buzz::view(v, 1, 5, 1));
  EXPECT_EQ(v[0], 0);
  EXPECT_EQ(v[1], 20);
  EXPECT_TRUE(v[3] != v[3] && v[4] != v[4]);
}

TEST(Compact, MovesRowsOfAnyPlainType) {
  std::vector<Eigen::half> halves;
  for (int i = 0; i < 4; ++i) halves.push_back(Eigen::half(static_cast<float>(i) / 2));
  buzz::compact(keeping(4, {{1, 3}}), buzz::view(halves, 1, 4, 1));
  EXPECT_EQ(static_cast<float>(halves[0]), 0.5f);
  EXPECT_EQ(static_cast<float>(halves[1]), 1.5f);
  std::vector<std::uint8_t> bytes = {1, 2, 3, 4};  // a quantised row is bytes
  buzz::compact(keeping(2, {{1}}), buzz::view(bytes, 1, 2, 2));
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{3, 4, 3, 4}));
}

TEST(Compact, OfNothingWithNoDataIsAllowed) {
  EXPECT_NO_THROW(buzz::compact(keeping(0, {{}, {}}), View<float>(nullptr, 2, 0, 4)));
}

TEST(Compact, TwiceIsTheSecondChoiceOfTheFirst) {
  std::vector<float> v = counted(1, 6, 1);
  buzz::compact(keeping(6, {{0, 2, 4, 5}}), buzz::view(v, 1, 6, 1));
  buzz::compact(keeping(4, {{1, 3}}), buzz::view(v, 1, 6, 1));
  EXPECT_EQ(v[0], 20);
  EXPECT_EQ(v[1], 50);
}

TEST(Compact, RefusesViewsOfAnotherCache) {
  std::vector<float> v = counted(2, 4, 1);
  const KeptRows keep = keeping(4, {{1, 3}, {0, 2}});
  EXPECT_THROW(buzz::compact(keep, buzz::view(v, 1, 8, 1)), buzz::InvalidArgument) << "one head";
  EXPECT_THROW(buzz::compact(keep, View<float>(v.data(), 2, 3, 1, 4, 1)), buzz::InvalidArgument) << "three rows";
  EXPECT_THROW(buzz::compact(keep, 0, buzz::view(v, 2, 4, 1)), buzz::InvalidArgument) << "two heads for one";
  EXPECT_THROW(buzz::compact(keep, 2, View<float>(v.data(), 1, 4, 1)), buzz::InvalidArgument) << "no such head";
  EXPECT_THROW(buzz::compact(keep, -1, View<float>(v.data(), 1, 4, 1)), buzz::InvalidArgument) << "no such head";
  EXPECT_EQ(v, counted(2, 4, 1));
}

}  // namespace
