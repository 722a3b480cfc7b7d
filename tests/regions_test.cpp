#include "buzz/regions.h"

#include <gtest/gtest.h>

#include <limits>

namespace {

using buzz::Protect;
using buzz::Regions;

static_assert(buzz::divide(20, 0, Protect{4, 10}) == Regions{4, 0, 6, 10}, "sizes are known at compile time");
static_assert(buzz::chunks(11, 5) == 3 && buzz::default_hive_stride(5) == 3, "so are those after an eviction");
static_assert(Protect{}.sink == 4 && Protect{}.window == 160, "the paper's sizes");

constexpr int kMost = std::numeric_limits<int>::max();

TEST(Regions, OfAnEmptyCacheAreEmpty) { EXPECT_EQ(buzz::divide(0, 0, Protect{4, 10}), (Regions{0, 0, 0, 0})); }

TEST(Regions, SinkFillsFirst) {
  EXPECT_EQ(buzz::divide(1, 0, Protect{4, 10}), (Regions{1, 0, 0, 0}));
  EXPECT_EQ(buzz::divide(3, 0, Protect{4, 10}), (Regions{3, 0, 0, 0}));
  EXPECT_EQ(buzz::divide(4, 0, Protect{4, 10}), (Regions{4, 0, 0, 0}));
  EXPECT_EQ(buzz::divide(5, 0, Protect{4, 10}), (Regions{4, 0, 0, 1}));
}

TEST(Regions, WindowIsFullAtExactlyItsSize) {
  EXPECT_EQ(buzz::divide(9, 0, Protect{0, 10}), (Regions{0, 0, 0, 9}));
  EXPECT_EQ(buzz::divide(10, 0, Protect{0, 10}), (Regions{0, 0, 0, 10}));
  EXPECT_EQ(buzz::divide(11, 0, Protect{0, 10}), (Regions{0, 0, 1, 10}));
}

TEST(Regions, WindowIsFullAtExactlyItsSizeBehindASink) {
  EXPECT_EQ(buzz::divide(13, 0, Protect{4, 10}), (Regions{4, 0, 0, 9}));
  EXPECT_EQ(buzz::divide(14, 0, Protect{4, 10}), (Regions{4, 0, 0, 10}));
  EXPECT_EQ(buzz::divide(15, 0, Protect{4, 10}), (Regions{4, 0, 1, 10}));
}

TEST(Regions, UnfilteredRowsLieBetweenHiveAndWindow) {
  EXPECT_EQ(buzz::divide(18, 5, Protect{4, 10}), (Regions{4, 5, 0, 9}));
  EXPECT_EQ(buzz::divide(19, 5, Protect{4, 10}), (Regions{4, 5, 0, 10}));
  EXPECT_EQ(buzz::divide(30, 5, Protect{4, 10}), (Regions{4, 5, 11, 10}));
}

TEST(Regions, WindowOfZeroLeavesEveryRowUnfiltered) {
  EXPECT_EQ(buzz::divide(9, 0, Protect{4, 0}), (Regions{4, 0, 5, 0}));
  EXPECT_EQ(buzz::divide(9, 0, Protect{0, 0}), (Regions{0, 0, 9, 0}));
}

TEST(Regions, WindowOfOneHoldsTheNewestRowAlone) {
  EXPECT_EQ(buzz::divide(1, 0, Protect{0, 1}), (Regions{0, 0, 0, 1}));
  EXPECT_EQ(buzz::divide(2, 0, Protect{0, 1}), (Regions{0, 0, 1, 1}));
}

TEST(Regions, AddUpToTheRows) {
  for (int sink = 0; sink < 4; ++sink)
    for (int window = 0; window < 6; ++window)
      for (int rows = 0; rows < 20; ++rows)
        for (int hive = 0; hive <= rows - sink; ++hive) {
          const Regions r = buzz::divide(rows, hive, Protect{sink, window});
          EXPECT_EQ(r.rows(), rows);
          EXPECT_EQ(r.sink + r.hive + r.unfiltered + r.window, rows);
          EXPECT_EQ(r.middle(), r.hive + r.unfiltered);
          EXPECT_TRUE(r.window == window || r.unfiltered == 0);
        }
}

TEST(Regions, DoNotOverflow) {
  EXPECT_EQ(buzz::divide(10, 0, Protect{4, kMost}), (Regions{4, 0, 0, 6}));
  EXPECT_EQ(buzz::divide(10, 0, Protect{kMost, kMost}), (Regions{10, 0, 0, 0}));
  EXPECT_EQ(buzz::divide(kMost, 0, Protect{1, 1}), (Regions{1, 0, kMost - 2, 1}));
}

TEST(Regions, AreEqualIfAllFourAre) {
  const Regions r{1, 2, 3, 4};
  EXPECT_TRUE(r == (Regions{1, 2, 3, 4}));
  for (const Regions& other : {Regions{9, 2, 3, 4}, Regions{1, 9, 3, 4}, Regions{1, 2, 9, 4}, Regions{1, 2, 3, 9}}) {
    EXPECT_FALSE(r == other);
    EXPECT_TRUE(r != other);
  }
}

TEST(Chunks, CountTheShortOneToo) {
  EXPECT_EQ(buzz::chunks(0, 5), 0);
  EXPECT_EQ(buzz::chunks(1, 5), 1);
  EXPECT_EQ(buzz::chunks(5, 5), 1);
  EXPECT_EQ(buzz::chunks(6, 5), 2);
  EXPECT_EQ(buzz::chunks(7, 1), 7);
}

TEST(Chunks, DoNotOverflow) {
  EXPECT_EQ(buzz::chunks(kMost, kMost), 1);
  EXPECT_EQ(buzz::chunks(1, kMost), 1);
  EXPECT_EQ(buzz::chunks(kMost, 2), 1 << 30);
}

TEST(HiveStride, IsHalfTheStrideRoundedUpButAlwaysShrinks) {
  const int expected[] = {2, 2, 2, 2, 3, 3, 4, 4, 5};
  for (int stride = 1; stride <= 9; ++stride) EXPECT_EQ(buzz::default_hive_stride(stride), expected[stride - 1]);
  EXPECT_EQ(buzz::default_hive_stride(kMost), 1 << 30);
}

}  // namespace
