#include "buzz/score/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "buzz/policy_list.h"

namespace {

using buzz::Reduction;
using Scores = std::vector<double>;
using Heads = std::vector<Scores>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// What the heads' scores become.
Scores reduced(const buzz::ReductionOptions& o, const Heads& heads, int capacity = 100) {
  buzz::SharedImportance shared(o, static_cast<int>(heads.size()), capacity);
  const int count = static_cast<int>(heads[0].size());
  shared.begin(count);
  for (const Scores& head : heads) {
    std::copy(head.begin(), head.end(), shared.scores());
    shared.add();
  }
  Scores out(static_cast<std::size_t>(count));
  shared.write(out.data());
  return out;
}

/// The same, slowly, of finite scores.
Scores slowly(Reduction reduce, double part, const Heads& heads) {
  Heads z = heads;
  for (Scores& head : z) {
    long double mean = 0, variance = 0;
    for (double x : head) mean += x / static_cast<long double>(head.size());
    for (double x : head) variance += (x - mean) * (x - mean) / static_cast<long double>(head.size());
    for (double& x : head)
      if (reduce != Reduction::sum) x = variance < 1e-25L ? 0 : static_cast<double>((x - mean) / std::sqrt(variance));
  }
  std::size_t of = 1;
  while (static_cast<double>(of) < part * static_cast<double>(heads.size()) - 1e-9) ++of;
  Scores result;
  for (std::size_t r = 0; r < heads[0].size(); ++r) {
    Scores row;
    for (const Scores& head : z) row.push_back(head[r]);
    std::sort(row.rbegin(), row.rend());
    double sum = 0;
    const std::size_t count = reduce == Reduction::maximum ? 1 : reduce == Reduction::top ? of : row.size();
    for (std::size_t i = 0; i < count; ++i) sum += row[i];
    result.push_back(reduce == Reduction::sum ? sum : sum / static_cast<double>(count));
  }
  return result;
}

TEST(Reduction, IsWhatItIsSlowly) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto in = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    Heads heads(static_cast<std::size_t>(in(1, 20)), Scores(static_cast<std::size_t>(in(0, 12))));
    for (Scores& head : heads) {
      std::normal_distribution<double> normal(in(-5, 5), std::pow(10., in(-3, 3)));
      for (double& x : head) x = in(0, 9) == 0 ? 1 : normal(random);
    }
    for (Reduction reduce : {Reduction::sum, Reduction::mean, Reduction::maximum, Reduction::top}) {
      const double part = reduce != Reduction::top ? 0.125 : in(0, 1) == 0 ? in(1, 20) / 20. : 1e-6;
      const Scores got = reduced({reduce, part}, heads, in(12, 15)), expected = slowly(reduce, part, heads);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t r = 0; r < got.size(); ++r)
        ASSERT_NEAR(got[r], expected[r], 1e-9 * (1 + std::abs(expected[r])))
            << "reduction " << static_cast<int>(reduce) << ", part " << part << ", row " << r << ", try " << i;
    }
  }
}

TEST(Reduction, OfASumIsTheScoresAsTheyAre) {
  EXPECT_EQ(reduced({}, {{1, 2, 3}, {10, 0, 5}, {0, 0, 0.5}}), (Scores{11, 2, 8.5}));
  EXPECT_TRUE(buzz::is_nan(reduced({}, {{1, 2}, {kNan, 1}})[0])) << "NaN to one head is NaN";
  EXPECT_EQ(reduced({}, {{1, 2}, {kNan, 1}})[1], 3);
}

TEST(Reduction, ByHand) {
  // Of deviation 1: -1, 1 and 1, -1 and -1, 1.
  const Heads heads = {{1, 3}, {700, 500}, {-1e-3, 1e-3}};
  EXPECT_EQ(reduced({Reduction::mean}, heads), (Scores{-1 / 3., 1 / 3.}));
  EXPECT_EQ(reduced({Reduction::maximum}, heads), (Scores{1, 1}));
  EXPECT_EQ(reduced({Reduction::top, 0.1}, heads), (Scores{1, 1}));
  EXPECT_EQ(reduced({Reduction::top, 0.5}, heads), (Scores{0, 1})) << "of two of three";
  EXPECT_EQ(reduced({Reduction::top, 1}, heads), (Scores{-1 / 3., 1 / 3.})) << "of all: the mean";
}

TEST(Reduction, OfATenthOfTenHeadsIsOfOne) {
  Heads heads(10, Scores{0, 1});
  heads[7] = {1, 0};
  EXPECT_EQ(reduced({Reduction::top, 0.1}, heads), (Scores{1, 1}));
  EXPECT_EQ(reduced({Reduction::top, 0.1001}, heads), (Scores{0, 1})) << "and a little more is of two";
  heads.resize(100, Scores{0, 1});
  EXPECT_LT(reduced({Reduction::top, 0.07}, heads)[0], reduced({Reduction::top, 0.06}, heads)[0]);
  EXPECT_NEAR(reduced({Reduction::top, 0.07}, heads)[0], (1 - 6) / 7., 1e-12) << "0.07 * 100 is above 7 in double";
}

TEST(Reduction, AHeadToWhichNoRowIsFiniteSaysNothing) {
  const Heads heads = {{3, 1, 2}, {0, 5, 1}}, more = {{3, 1, 2}, {kNan, kNan, kNan}, {0, 5, 1}, {kNan, kInf, -kInf}};
  for (Reduction reduce : {Reduction::mean, Reduction::maximum})
    EXPECT_EQ(reduced({reduce}, heads), reduced({reduce}, more));
  EXPECT_EQ(reduced({Reduction::top, 0.5}, {heads[0]}), reduced({Reduction::top, 0.5}, {heads[0], {kNan, kNan, kNan}}));
  for (Reduction reduce : {Reduction::mean, Reduction::maximum, Reduction::top})
    EXPECT_EQ(reduced({reduce}, {{kNan, kNan}}), (Scores{0, 0})) << "and of none, all are alike";
}

TEST(Reduction, ARowThatIsNanToAHeadIsNanAndDoesNotCountThere) {
  for (Reduction reduce : {Reduction::mean, Reduction::maximum, Reduction::top}) {
    const Scores without = reduced({reduce, 0.5}, {{1, 3, 9}, {5, 4, 8}, {2, 2, 1}});
    for (std::size_t bad = 0; bad < 3; ++bad) {
      Heads heads = {{1, 7, 3, 9}, {5, 7, 4, 8}, {2, 7, 2, 1}};
      for (Scores& head : heads) head[1] = 0;
      heads[bad][1] = kNan;
      const Scores got = reduced({reduce, 0.5}, heads);
      EXPECT_TRUE(buzz::is_nan(got[1])) << "whichever head it is";
      for (std::size_t r : {0u, 2u, 3u}) EXPECT_TRUE(buzz::is_finite(got[r]));
    }
    Heads all = {{1, kNan, 3, 9}, {5, kNan, 4, 8}, {2, kNan, 2, 1}};
    const Scores got = reduced({reduce, 0.5}, all);
    EXPECT_EQ((Scores{got[0], got[2], got[3]}), without);
    EXPECT_TRUE(buzz::is_nan(got[1]));
  }
}

TEST(Reduction, AnInfiniteScoreStaysSo) {
  for (Reduction reduce : {Reduction::mean, Reduction::maximum, Reduction::top}) {
    const Scores got = reduced({reduce}, {{1, 2, kInf, 3}, {5, 4, 0, 9}});
    EXPECT_EQ(got[2], kInf) << "whoever gives it keeps the row";
    EXPECT_TRUE(buzz::is_finite(got[0]));
  }
  EXPECT_EQ(reduced({Reduction::mean}, {{1, 2, -kInf, 3}, {5, 4, 0, 9}})[2], -kInf);
  EXPECT_TRUE(buzz::is_finite(reduced({Reduction::maximum}, {{1, 2, -kInf, 3}, {5, 4, 0, 9}})[2])) << "another has it";
}

TEST(Reduction, BeginsAnewEachTime) {
  buzz::SharedImportance shared({Reduction::top, 1}, 2, 4);
  for (int time = 0; time < 3; ++time) {
    shared.begin(2);
    for (Scores head : {Scores{0, 1}, Scores{time == 1 ? kNan : 1, 0}}) {
      std::copy(head.begin(), head.end(), shared.scores());
      shared.add();
    }
    double out[2];
    shared.write(out);
    EXPECT_EQ(buzz::is_nan(out[0]), time == 1);
    EXPECT_EQ(out[1], time == 1 ? 0.5 : 0);
  }
}

TEST(Reduction, TakesTheMemoryThatThePageSays) {
  EXPECT_EQ(buzz::SharedImportance().bytes(), 0u);
  for (Reduction reduce : {Reduction::sum, Reduction::mean, Reduction::maximum})
    EXPECT_EQ(buzz::SharedImportance({reduce, 0.5}, 64, 100).bytes(), 16u * 100);
  EXPECT_EQ(buzz::SharedImportance({Reduction::top, 0.125}, 65, 100).bytes(), 8u * (1 + 9) * 100);
}

/// The field that f() is refused with.
template <class F>
std::string refused(F&& f) {
  try {
    f();
  } catch (const buzz::InvalidArgument& e) {
    return e.field();
  }
  return "nothing";
}

TEST(Reduction, RefusesWhatIsNone) {
  buzz::Policy policy = buzz::leverage();
  for (double bad : {0., -0.5, 1.0001, kNan, kInf}) {
    policy.reduction.part = bad;
    EXPECT_EQ(refused([&] { policy.most_rows(1); }), "part") << bad;
  }
  policy.reduction = {static_cast<Reduction>(4)};
  EXPECT_EQ(refused([&] { policy.most_rows(1); }), "reduce");
  policy.reduction = {};
  policy.sharing = static_cast<buzz::Sharing>(3);
  EXPECT_EQ(refused([&] { policy.most_rows(1); }), "sharing");
}

TEST(Reduction, IsAnOptionOfEveryPolicy) {
  for (const buzz::PolicyInfo& info : buzz::policies()) {
    const std::string name = info.name, more = "sharing=model,reduce=top,part=0.25";
    const buzz::Policy policy = buzz::policy(name + ":" + more);
    EXPECT_EQ(policy.sharing, buzz::Sharing::model) << name;
    EXPECT_EQ(policy.reduction.reduce, Reduction::top) << name;
    EXPECT_EQ(policy.reduction.part, 0.25) << name;
    EXPECT_TRUE(policy.keeps_one_list()) << name;
    // What a policy has by itself is not said.
    const bool has_it = info.make().sharing == buzz::Sharing::model;
    EXPECT_EQ(buzz::to_text(policy), name + ":" + (has_it ? "reduce=top,part=0.25" : more));
    EXPECT_EQ(buzz::policy(buzz::to_text(info.make())).sharing, info.make().sharing);
    EXPECT_EQ(refused([&] { buzz::policy(name + ":sharing=all"); }), "sharing");
    EXPECT_EQ(refused([&] { buzz::policy(name + ":reduce=median"); }), "reduce");
    for (const char* part : {"0", "1.5", "-1", "nan"})
      EXPECT_EQ(refused([&] { buzz::policy(name + ":part=" + part); }), "part");
  }
}

}  // namespace
