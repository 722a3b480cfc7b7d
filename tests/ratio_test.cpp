#include "../bench/ratio.h"

#include <gtest/gtest.h>

#include <utility>

namespace {

using bench::compare;
using bench::Goal;
using bench::quantile;

TEST(Ratio, QuantileLiesBetweenNeighbours) {
  EXPECT_EQ(quantile({7}, 0.5), 7);
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({5, 4, 3, 2, 1}, 0.25), 2);
  EXPECT_EQ(quantile({2, 1}, 1), 2);
}

TEST(Ratio, IsTheMedianOfRoundsAndTheSpreadTheirQuartiles) {
  int call = 0;
  const double times[] = {99, 0.5, 1.5, 2, 2, 1, 5, 4, 4, 99, 101};  // the first is the warm-up's
  const auto a = [&] { return times[call++]; };
  const bench::Ratio r = compare(
      "a / b", Goal::none(), a, [] { return 2.0; }, 10, 5);
  EXPECT_EQ(r.ratio, 15);
  EXPECT_EQ(r.spread, 10);
}

TEST(Ratio, OfARoundTheSecondPairBeginsWithTheOtherSide) {
  std::string order;
  const auto side = [&](char name) {
    return [&order, name] {
      order += name;
      return 1.0;
    };
  };
  compare("", Goal::none(), side('a'), side('b'), 1, 3);
  EXPECT_EQ(order,
            "ab"
            "abba"
            "abba"
            "abba");
}

TEST(Ratio, NoSecondsAreOneRound) {
  const double usual = std::exchange(bench::most_seconds, 0);
  int calls = 0;
  compare(
      "", Goal::none(), [&] { return ++calls; }, [] { return 1; });
  EXPECT_EQ(calls, 1 + 2) << "to warm up, and in two pairs";
  bench::most_seconds = usual;
}

TEST(Ratio, DoesNotDependOnWhichSideFindsItsOwnTraces) {
  char last = ' ';
  const auto side = [&](char name) {
    return [&last, name] {
      const double time = last == name ? 1 : 3;  // what it reads is in the cache, or is not
      last = name;
      return time;
    };
  };
  const bench::Ratio r = compare("", Goal::none(), side('a'), side('b'), 1, 9);
  EXPECT_EQ(r.ratio, 1);
  EXPECT_EQ(r.spread, 0);
}

TEST(Ratio, RepeatedGivesTheTimeOfOneCall) {
  int calls = 0;
  const bench::Side side = bench::repeated([&] { ++calls; });
  const double once = side();
  EXPECT_GT(calls, 1);
  EXPECT_GT(once, 0);
  EXPECT_LT(once, 1e-4);
}

TEST(Ratio, GoalSaysWhatItAsksAndWhetherItIsMet) {
  EXPECT_EQ(Goal::at_most(1.03).text(), "<= 1.03");
  EXPECT_EQ(Goal::at_least(20).text(), ">= 20");
  EXPECT_EQ(Goal::none().text(), "-");
  EXPECT_EQ(Goal::at_most(0.6).verdict(0.6), "ok");
  EXPECT_EQ(Goal::at_most(0.6).verdict(0.61), "short");
  EXPECT_EQ(Goal::at_least(20).verdict(19), "short");
  EXPECT_EQ(Goal::at_least(20).verdict(20), "ok");
  EXPECT_EQ(Goal::none().verdict(5), "-");
}

}  // namespace
