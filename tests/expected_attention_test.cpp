#include "buzz/score/expected_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "buzz/policy_list.h"
#include "expected_rows.h"

namespace {

using expected::Floats;
using expected::kInf;
using expected::kNan;

std::vector<double> scored(const Floats& queries, const Floats& keys, const Floats& values, int heads, int dim,
                           const buzz::ExpectedOptions& o = {}, const buzz::ShownRows& more = {}) {
  return expected::scored(buzz::ExpectedAttention(o), queries, keys, values, heads, dim, more);
}

TEST(ExpectedAttention, IsTheSoftmaxOfTheMeanQueryTimesTheValuesLength) {
  // Mean query 1, logits 0 and ln 3: a quarter and three quarters.
  const auto got = scored({0.5f, 1.5f}, {0, std::log(3.f)}, {2, -4}, 1, 1);
  EXPECT_NEAR(got[0], 0.25 * 2, 1e-6);
  EXPECT_NEAR(got[1], 0.75 * 4, 1e-6);
  buzz::ExpectedOptions alone;
  alone.times = buzz::ExpectedTimes::nothing;
  EXPECT_NEAR(scored({0.5f, 1.5f}, {0, std::log(3.f)}, {2, -4}, 1, 1, alone)[1], 0.75, 1e-6);
}

TEST(ExpectedAttention, IsTheMeanOverTheGroup) {
  // Heads that expect 1 and -1.
  const auto got = scored({1, -1}, {0, std::log(3.f)}, {1, 1}, 2, 1);
  EXPECT_NEAR(got[0], (0.25 + 0.75) / 2, 1e-6);
  EXPECT_NEAR(got[1], (0.75 + 0.25) / 2, 1e-6);
}

TEST(ExpectedAttention, HasTheLayersScale) {
  buzz::ShownRows rows;
  rows.scale = 2;
  EXPECT_NEAR(scored({1}, {0, std::log(3.f)}, {1, 1}, 1, 1, {}, rows)[1], 0.9, 1e-6);
}

TEST(ExpectedAttention, OfARowThatIsNotFiniteIsNanAndOthersDoNotSeeIt) {
  const float key = std::log(3.f);
  const auto got = scored({1}, {0, kNan, key, kInf, 1, 0}, {1, 1, 1, 1, kNan, kInf}, 1, 1);
  EXPECT_TRUE(buzz::is_nan(got[1]) && buzz::is_nan(got[3]) && buzz::is_nan(got[4]) && buzz::is_nan(got[5]));
  EXPECT_NEAR(got[2] / got[0], 3, 1e-5);
  for (double x : scored({1}, {kNan, kNan}, {1, 1}, 1, 1)) EXPECT_TRUE(buzz::is_nan(x));
}

TEST(ExpectedAttention, OfNoRowsIsNothing) { EXPECT_TRUE(scored({1}, {}, {}, 1, 1).empty()); }

TEST(ExpectedAttention, OfLogitsThatNoExpTakesIsStillOne) {
  const auto got = scored({3e4f}, {3e4f, -3e4f, 2.9e4f}, {1, 1, 1}, 1, 1);
  EXPECT_EQ(got, (std::vector<double>{1, 0, 0}));
}

TEST(ExpectedAttention, TurnsTheMeanQueryByTheMeanOfTheNextRotations) {
  for (const double f : {1e-9, 1e-4, 0.3, 1.0, 3.141592653589793, 6.283185307179586, 0.0, 50.0})
    for (const int count : {1, 2, 512, 1000})
      for (const double first : {0.0, 7.0, 5000.0}) {
        double cos = 0, sin = 0;
        for (int i = 0; i < count; ++i)
          cos += std::cos(f * (first + i)) / count, sin += std::sin(f * (first + i)) / count;
        const buzz::PairRotation turn = buzz::mean_of_next(f, first, count);
        EXPECT_NEAR(turn.cos, cos, 1e-9) << f << " " << count << " " << first;
        EXPECT_NEAR(turn.sin, sin, 1e-9) << f << " " << count << " " << first;
      }
}

TEST(ExpectedAttention, IsTheOraclesInAnyShapeAndRope) {
  oracle::Options o;
  o.score = oracle::Score::expected;
  expected::agrees(o, [](const oracle::Options& same) {
    buzz::ExpectedOptions options;
    options.horizon = same.horizon;
    options.times = same.times_value ? buzz::ExpectedTimes::value : buzz::ExpectedTimes::nothing;
    return buzz::ExpectedAttention(options);
  });
}

TEST(ExpectedAttention, HasOptionsThatAreRefusedByName) {
  EXPECT_EQ(oracle::refused([] { buzz::policy("expected_attention:horizon=0"); }), "horizon");
  EXPECT_EQ(oracle::refused([] { buzz::policy("expected_attention:horizon=16777217"); }), "horizon");
  EXPECT_EQ(oracle::refused([] { buzz::policy("expected_attention:times=key"); }), "times");
  EXPECT_EQ(buzz::to_text(buzz::policy("expected_attention:horizon=9,times=nothing")),
            "expected_attention:horizon=9,times=nothing");
  EXPECT_EQ(buzz::expected_attention().score.code(), 9);
  EXPECT_TRUE(buzz::expected_attention().needs().values);
  EXPECT_FALSE(buzz::policy("expected_attention:times=nothing").needs().values);
}

}  // namespace
