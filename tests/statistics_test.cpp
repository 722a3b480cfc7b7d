#include "evaluate/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tiny_llama/documents.h"

namespace {

using evaluate::Estimate;
using evaluate::Unit;

// By hand from Wilson's formula with z = 1.95996: of 81 in 263 (the example of Newcombe 1998, "Two-sided confidence
// intervals for the single proportion", table I: 0.2553 to 0.3662), and the same table's 15 of 148, 0 of 20, 1 of 29.
TEST(Wilson, NewcombesExamples) {
  const auto is = [](std::size_t yes, std::size_t all, double low, double high) {
    const Estimate e = evaluate::share(yes, all);
    EXPECT_DOUBLE_EQ(e.value, static_cast<double>(yes) / static_cast<double>(all));
    EXPECT_NEAR(e.low, low, 5e-5);
    EXPECT_NEAR(e.high, high, 5e-5);
  };
  is(81, 263, 0.2553, 0.3662);
  is(15, 148, 0.0624, 0.1605);
  is(0, 20, 0.0000, 0.1611);
  is(1, 29, 0.0061, 0.1718);
}

TEST(Wilson, OfNoneIsAnything) {
  const Estimate e = evaluate::share(0, 0);
  EXPECT_EQ(e.low, 0);
  EXPECT_EQ(e.high, 1);
}

TEST(Bootstrap, OfEqualUnitsHasNoWidth) {
  const Estimate e = evaluate::bootstrap({{6, 2}, {3, 1}, {12, 4}});
  EXPECT_DOUBLE_EQ(e.value, 3);
  EXPECT_DOUBLE_EQ(e.low, 3);
  EXPECT_DOUBLE_EQ(e.high, 3);
}

TEST(Bootstrap, WeighsUnitsAndMapsTheMean) {
  const Estimate e = evaluate::bootstrap({{1, 1}, {9, 3}}, [](double mean) { return 10 * mean; });
  EXPECT_DOUBLE_EQ(e.value, 25);
  EXPECT_DOUBLE_EQ(e.low, 10);
  EXPECT_DOUBLE_EQ(e.high, 30);
}

TEST(Bootstrap, IsTheSameEachTime) {
  std::vector<Unit> units;
  for (int i = 0; i < 30; ++i) units.push_back({std::sin(i), 1});
  const Estimate a = evaluate::bootstrap(units), b = evaluate::bootstrap(units);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
}

// Means of 40 uniform numbers: their interval should hold the true mean 19 times of 20, and is about 0.18 wide.
TEST(Bootstrap, HoldsTheTrueMeanAsOftenAsItSays) {
  tiny_llama::Random random(7);
  int held = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Unit> units;
    for (int i = 0; i < 40; ++i) units.push_back({static_cast<double>(random.below(1000)) / 999, 1});
    const Estimate e = evaluate::bootstrap(units);
    held += e.low <= 0.5 && 0.5 <= e.high;
    EXPECT_NEAR(e.high - e.low, 0.18, 0.07);
  }
  EXPECT_GE(held, 270);
  EXPECT_LE(held, 297);
}

TEST(Bootstrap, OfOneUnitIsThatUnit) {
  const Estimate e = evaluate::bootstrap({{4, 2}});
  EXPECT_EQ(e.low, 2);
  EXPECT_EQ(e.high, 2);
}

TEST(Difference, IsUnitByUnit) {
  const std::vector<Unit> d = evaluate::difference({{5, 2}, {1, 1}}, {{3, 2}, {4, 1}});
  EXPECT_EQ(d[0].sum, 2);
  EXPECT_EQ(d[0].weight, 2);
  EXPECT_EQ(d[1].sum, -3);
}

}  // namespace
