#include "buzz/chunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kMost = std::numeric_limits<int>::max();

constexpr float kThree[] = {1, 3, 2};
static_assert(buzz::heaviest(kThree, 3) == 1, "a choice is possible at compile time");

int heaviest(const std::vector<float>& importance) {
  return buzz::heaviest(importance.data(), static_cast<int>(importance.size()));
}

std::vector<std::int32_t> picked_of(const std::vector<float>& importance, long long chunk, int keep) {
  std::vector<std::int32_t> out(importance.size() + 1, -1);
  const int n = buzz::pick_of_chunks(importance.data(), static_cast<int>(importance.size()), chunk, keep, out.data());
  EXPECT_EQ(out[static_cast<std::size_t>(n)], -1) << "wrote past the end";
  out.resize(static_cast<std::size_t>(n));
  return out;
}

/// One row in `stride` stays.
std::vector<std::int32_t> picked(const std::vector<float>& importance, int stride, int keep = 1) {
  return picked_of(importance, 1LL * keep * stride, keep);
}

std::vector<std::int32_t> every(int count, int stride) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count) + 1, -1);
  out.resize(static_cast<std::size_t>(buzz::pick_every(count, stride, out.data())));
  return out;
}

using Rows = std::vector<std::int32_t>;

TEST(Beats, IsStrict) {
  EXPECT_TRUE(buzz::beats(2.f, 1.f));
  EXPECT_FALSE(buzz::beats(1.f, 2.f));
  EXPECT_FALSE(buzz::beats(1.f, 1.f));
  EXPECT_FALSE(buzz::beats(0.f, -0.f));
}

TEST(Beats, NanLosesAgainstEveryNumber) {
  for (float number : {0.f, -1.f, kInf, -kInf}) {
    EXPECT_TRUE(buzz::beats(number, kNan));
    EXPECT_FALSE(buzz::beats(kNan, number));
  }
  EXPECT_FALSE(buzz::beats(kNan, kNan));
}

TEST(Heaviest, IsTheHighest) {
  EXPECT_EQ(heaviest({7}), 0);
  EXPECT_EQ(heaviest({1, 2, 3}), 2);
  EXPECT_EQ(heaviest({-3, -1, -2}), 1);
  EXPECT_EQ(heaviest({1, kInf, 2}), 1);
}

TEST(Heaviest, TiesGoToTheLowestRow) {
  EXPECT_EQ(heaviest({1, 5, 5, 5}), 1);
  EXPECT_EQ(heaviest({0, 0, 0}), 0);
  EXPECT_EQ(heaviest({-0.f, 0.f}), 0);
}

TEST(Heaviest, NanLosesWhereverItStands) {
  EXPECT_EQ(heaviest({kNan, -kInf}), 1);
  EXPECT_EQ(heaviest({-kInf, kNan}), 0);
  EXPECT_EQ(heaviest({kNan, 1, kNan, 2, kNan}), 3);
}

TEST(Heaviest, AmongNansIsTheLowestRow) { EXPECT_EQ(heaviest({kNan, kNan, kNan}), 0); }

TEST(PickChunks, TakesTheHeaviestOfEach) {
  EXPECT_EQ(picked({1, 3, 2, /**/ 9, 8, 7, /**/ 4, 5, 6}, 3), (Rows{1, 3, 8}));
}

TEST(PickChunks, TheLastShortChunkLeavesOneToo) {
  EXPECT_EQ(picked({1, 3, 2, /**/ 0}, 3), (Rows{1, 3}));
  EXPECT_EQ(picked({1, 3, 2, /**/ 0, 1}, 3), (Rows{1, 4}));
}

TEST(PickChunks, ChunksDoNotKnowOfEachOther) {
  EXPECT_EQ(picked({9, 9, 9, /**/ 1, 2, 1, /**/ kNan, kNan, kNan}, 3), (Rows{0, 4, 6}));
}

TEST(PickChunks, OfNothingIsNothing) { EXPECT_EQ(picked({}, 3), Rows{}); }

TEST(PickChunks, WithStrideOneTakesEveryRow) { EXPECT_EQ(picked({3, kNan, 1, 1}, 1, 2), (Rows{0, 1, 2, 3})); }

TEST(PickChunks, KeepTakesTheBestOfAWiderChunkInAscendingOrder) {
  EXPECT_EQ(picked({1, 9, 2, 3, 4, 8, /**/ 7, 6, 5, 5, 5, 5}, 3, 2), (Rows{1, 5, 6, 7}));
  EXPECT_EQ(picked({9, 8, 7, 1, 1, 1}, 2, 3), (Rows{0, 1, 2}));
}

TEST(PickChunks, AShortChunkKeepsItsShareRoundedUp) {
  // Chunks of 2 * 3 rows keep 2; what is left of 1 to 3 rows keeps 1, of 4 or 5 rows 2.
  EXPECT_EQ(picked({1, 9, 2, 3, 4, 8, /**/ 7}, 3, 2), (Rows{1, 5, 6}));
  EXPECT_EQ(picked({1, 9, 2, 3, 4, 8, /**/ 7, 7, 8}, 3, 2), (Rows{1, 5, 8}));
  EXPECT_EQ(picked({1, 9, 2, 3, 4, 8, /**/ 7, 7, 8, 0}, 3, 2), (Rows{1, 5, 6, 8}));
}

TEST(PickChunks, KeepBreaksTiesToTheLowestRows) {
  EXPECT_EQ(picked({5, 5, 5, 5, 5, 5}, 3, 2), (Rows{0, 1}));
  EXPECT_EQ(picked({1, 5, 2, 5, 5, 5}, 3, 2), (Rows{1, 3}));
  EXPECT_EQ(picked({5, 1, 1, 1, 1, 1}, 3, 2), (Rows{0, 1}));
}

TEST(PickChunks, KeepTakesNansOnlyWhereNumbersRunOut) {
  EXPECT_EQ(picked({kNan, -kInf, kNan, -5, kNan, kNan}, 3, 2), (Rows{1, 3}));
  EXPECT_EQ(picked({kNan, kNan, kNan, -5, kNan, kNan}, 3, 2), (Rows{0, 3}));
  EXPECT_EQ(picked({kNan, kNan, kNan, kNan, kNan, kNan}, 3, 2), (Rows{0, 1}));
}

TEST(PickChunks, SizesDoNotDependOnTheScores) {
  std::mt19937 random(1);
  for (std::size_t count = 0; count < 40; ++count)
    for (int stride = 1; stride < 7; ++stride)
      for (int keep = 1; keep < 5; ++keep)
        for (int kind = 0; kind < 3; ++kind) {
          std::vector<float> importance(count, kind == 1 ? kNan : 1.f);
          if (kind == 2)
            for (float& w : importance) w = static_cast<float>(random() % 4);
          const Rows rows = picked(importance, stride, keep);
          EXPECT_EQ(rows.size(), (count + static_cast<std::size_t>(stride) - 1) / static_cast<std::size_t>(stride));
          EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end(), std::less_equal<>())) << "ascending, none twice";
        }
}

TEST(PickChunks, AreTheBestByASort) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const int stride = 1 + static_cast<int>(random() % 5), keep = 1 + static_cast<int>(random() % 4);
    std::vector<float> importance(random() % 50);
    for (float& w : importance) w = random() % 8 == 0 ? kNan : static_cast<float>(random() % 6);
    Rows expected;
    for (int begin = 0; begin < static_cast<int>(importance.size()); begin += keep * stride) {
      const int end = std::min(begin + keep * stride, static_cast<int>(importance.size()));
      Rows order;
      for (int i = begin; i < end; ++i) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        const float x = importance[static_cast<std::size_t>(a)], y = importance[static_cast<std::size_t>(b)];
        return (buzz::is_nan(x) ? -1.f : x) > (buzz::is_nan(y) ? -1.f : y);
      });
      order.resize(static_cast<std::size_t>((end - begin + stride - 1) / stride));
      std::sort(order.begin(), order.end());
      expected.insert(expected.end(), order.begin(), order.end());
    }
    EXPECT_EQ(picked(importance, stride, keep), expected);
  }
}

TEST(PickChunks, HugeStridesMakeOneChunk) {
  EXPECT_EQ(picked({1, 3, 2}, kMost), (Rows{1}));
  EXPECT_EQ(picked({1, 3, 2}, 3, kMost), (Rows{1}));
  EXPECT_EQ(picked({1, 3, 2}, 2, kMost), (Rows{1, 2}));
  EXPECT_EQ(picked({1, 3, 2}, kMost, kMost), (Rows{1}));
}

TEST(PickEvery, StartsWithTheFirst) {
  EXPECT_EQ(every(7, 3), (Rows{0, 3, 6}));
  EXPECT_EQ(every(6, 3), (Rows{0, 3}));
  EXPECT_EQ(every(1, 3), (Rows{0}));
  EXPECT_EQ(every(0, 3), Rows{});
}

TEST(PickEvery, HugeStridesTakeTheFirstAlone) { EXPECT_EQ(every(5, kMost), (Rows{0})); }

TEST(PickOfChunks, LeavesTheHeaviestOfEach) {
  EXPECT_EQ(picked_of({1, 2, 3, /**/ 9, 7, 8, /**/ 4}, 3, 2), (Rows{1, 2, 3, 5, 6}));
  EXPECT_EQ(picked_of({5, 1, 4, 2, 3, /**/ 1, 2}, 5, 3), (Rows{0, 2, 4, 5, 6})) << "2 of 2, as 3 of 5 would be 1.2";
  EXPECT_EQ(picked_of({5, 1, 4, 2, 3, /**/ 1}, 5, 3), (Rows{0, 2, 4, 5}));
  EXPECT_EQ(picked_of({1, 2, 3}, 2, 2), (Rows{0, 1, 2})) << "all of all";
  EXPECT_EQ(picked_of({}, 2, 1), (Rows{}));
}

TEST(PickOfChunks, OfWholeStridesIsPickChunks) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    const int stride = 1 + static_cast<int>(random() % 5), keep = 1 + static_cast<int>(random() % 4);
    std::vector<float> importance(random() % 60);
    for (float& w : importance) w = random() % 6 == 0 ? kNan : static_cast<float>(random() % 9);
    EXPECT_EQ(picked_of(importance, keep * stride, keep), picked(importance, stride, keep));
  }
}

TEST(PickOfChunks, LeavesAsManyWhateverTheScores) {
  for (int count = 0; count < 40; ++count)
    for (int chunk = 1; chunk < 12; ++chunk)
      for (int keep = 1; keep <= chunk; ++keep)
        EXPECT_EQ(picked_of(std::vector<float>(static_cast<std::size_t>(count), kNan), chunk, keep).size(),
                  static_cast<std::size_t>((count * keep + chunk - 1) / chunk));
}

TEST(PickOfChunks, TakesSizesThatOverflowTogether) {
  EXPECT_EQ(picked_of({1, 2, 3}, kMost, kMost), (Rows{0, 1, 2}));
  EXPECT_EQ(picked_of({1, 3, 2}, kMost, 1), (Rows{1}));
}

}  // namespace
