#include "buzz/score/tri_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "buzz/policy_list.h"
#include "expected_rows.h"

namespace {

using expected::Floats;
using expected::kInf;
using expected::kNan;

std::vector<double> scored(const Floats& queries, const Floats& keys, int heads, int dim) {
  return expected::scored(buzz::TriAttention(), queries, keys, keys, heads, dim, {});
}

TEST(TriAttention, IsTheMeanQuerysLogitAndTheSpreadTimesTheLength) {
  // Mean query 1, mean length 3: 1 * k + 2 * |k| is 3, 1, 0; their mean 4/3, their variance 14/9.
  const auto got = scored({4, -2}, {1, -1, 0}, 1, 1);
  const double deviation = std::sqrt(14. / 9);
  EXPECT_NEAR(got[0], (3 - 4. / 3) / deviation, 1e-6);
  EXPECT_NEAR(got[1], (1 - 4. / 3) / deviation, 1e-6);
  EXPECT_NEAR(got[2], (0 - 4. / 3) / deviation, 1e-6);
}

TEST(TriAttention, IsTheMaximumOverTheGroup) {
  const auto got = scored({1, -1}, {1, 0, -1}, 2, 1);
  EXPECT_EQ(got[0], got[2]);
  EXPECT_GT(got[0], 1);
  EXPECT_NEAR(got[1], 0, 1e-7);
}

TEST(TriAttention, OfEqualRowsOfOneAndOfNone) {
  EXPECT_EQ(scored({1, 2}, Floats(4, 0.3f), 1, 1), std::vector<double>(4, 0));
  EXPECT_EQ(scored({1, 2}, {3}, 1, 1), std::vector<double>{0});
  EXPECT_TRUE(scored({1, 2}, {}, 1, 1).empty());
}

TEST(TriAttention, OfARowThatIsNotFiniteIsNanAndOthersDoNotSeeIt) {
  const auto without = scored({1, -2}, {1, 5, 3}, 2, 1), got = scored({1, -2}, {kNan, 1, 5, kInf, 3, -kInf}, 2, 1);
  EXPECT_EQ((std::vector<double>{got[1], got[2], got[4]}), without);
  EXPECT_TRUE(buzz::is_nan(got[0]) && buzz::is_nan(got[3]) && buzz::is_nan(got[5]));
  for (double x : scored({1}, {kNan, kInf}, 1, 1)) EXPECT_TRUE(buzz::is_nan(x));
}

TEST(TriAttention, IsTheOraclesInAnyShapeAndRope) {
  oracle::Options o;
  o.score = oracle::Score::tri;
  expected::agrees(o, [](const oracle::Options& same) {
    buzz::TriOptions options;
    options.reach = same.reach;
    return buzz::TriAttention(options);
  });
}

TEST(TriAttention, HasAnOptionThatIsRefusedByName) {
  EXPECT_EQ(oracle::refused([] { buzz::policy("tri_attention:reach=0"); }), "reach");
  EXPECT_EQ(buzz::to_text(buzz::policy("tri_attention:reach=64")), "tri_attention:reach=64");
  EXPECT_EQ(buzz::tri_attention().score.code(), 10);
  EXPECT_FALSE(buzz::tri_attention().needs().values);
}

}  // namespace
