#include "buzz/score/cap_kv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "buzz/policy_list.h"
#include "expected_rows.h"

namespace {

using expected::Floats;
using expected::kInf;
using expected::kNan;

std::vector<double> scored(const Floats& queries, const Floats& keys, const Floats& values, int heads, int dim,
                           float sharpness = 5) {
  buzz::CapOptions o;
  o.sharpness = sharpness;
  return expected::scored(buzz::CapKv(o), queries, keys, values, heads, dim, {});
}

TEST(CapKv, OfOneDimensionIsTheShareOfTheWeightedSquares) {
  // Cosines 1, -1 and 0: weights e, 1 / e and 1; squares of values 1, 4 and 4.
  const double e = std::exp(1.), sum = 1 + e + 4 / e + 4;
  const auto got = scored({2}, {3, -4, 0}, {1, 2, -2}, 1, 1, 1);
  EXPECT_NEAR(got[0], e / sum, 1e-7);
  EXPECT_NEAR(got[1], 4 / e / sum, 1e-7);
  EXPECT_NEAR(got[2], 4 / sum, 1e-7);
}

TEST(CapKv, ExpectsTheMeanOfTheGroup) {
  EXPECT_EQ(scored({1, 2, 3, -2}, {1, 1, 1, -1}, {1, 0, 0, 1}, 2, 2),
            scored({2, 0}, {1, 1, 1, -1}, {1, 0, 0, 1}, 1, 2));
}

TEST(CapKv, OfNoRowsOfNoQueriesAndOfNoValues) {
  EXPECT_TRUE(scored({1}, {}, {}, 1, 1).empty());
  EXPECT_NEAR(scored({}, {7}, {3}, 1, 1)[0], 9. / 10, 1e-7);
  EXPECT_EQ(scored({1}, {7, 2}, {0, 0}, 1, 1), (std::vector<double>{0, 0}));
}

TEST(CapKv, OfARowThatIsNotFiniteIsNanAndOthersDoNotSeeIt) {
  const auto without = scored({1}, {1, -2}, {1, 5}, 1, 1);
  const auto got = scored({1}, {kNan, 1, 1, -2, kInf}, {1, 1, -kInf, 5, 1}, 1, 1);
  EXPECT_EQ((std::vector<double>{got[1], got[3]}), without);
  EXPECT_TRUE(buzz::is_nan(got[0]) && buzz::is_nan(got[2]) && buzz::is_nan(got[4]));
}

TEST(CapKv, IsTheOraclesInAnyShapeAndRope) {
  oracle::Options o;
  o.score = oracle::Score::cap;
  o.sharpness = 2;
  expected::agrees(o, [](const oracle::Options& same) {
    buzz::CapOptions options;
    options.horizon = same.horizon;
    options.sharpness = static_cast<float>(same.sharpness);
    return buzz::CapKv(options);
  });
}

TEST(CapKv, HasOptionsThatAreRefusedByName) {
  EXPECT_EQ(oracle::refused([] { buzz::policy("cap_kv:horizon=0"); }), "horizon");
  EXPECT_EQ(oracle::refused([] { buzz::policy("cap_kv:sharpness=-1"); }), "sharpness");
  EXPECT_EQ(oracle::refused([] { buzz::policy("cap_kv:sharpness=101"); }), "sharpness");
  EXPECT_EQ(buzz::to_text(buzz::policy("cap_kv:sharpness=2")), "cap_kv:sharpness=2");
  EXPECT_EQ(buzz::cap_kv().score.code(), 11);
}

}  // namespace
