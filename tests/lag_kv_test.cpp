#include "buzz/score/lag_kv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "buzz/policy_list.h"
#include "oracle_twin.h"

namespace {

using Floats = std::vector<float>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// What the score says of rows [first, first + count) of one head; keys [rows, dim], values [rows, value_dim].
std::vector<double> scored(const Floats& keys, const Floats& values, int rows, int lag, int first, int count) {
  buzz::LagOptions o;
  o.lag = lag;
  buzz::LagKv score(o);
  score.reserve(1, rows);
  const auto view = [rows](const Floats& x) {
    return buzz::RowsView<float>(buzz::View<const float>(x.data(), 1, rows, static_cast<int>(x.size()) / rows));
  };
  const buzz::RowsView<float> k = view(keys), v = view(values);
  const buzz::FloatRowsOf<float> ks(k), vs(v);
  std::vector<double> out(static_cast<std::size_t>(count));
  score.importance({0, first, count, nullptr, rows, &ks, &vs}, out.data());
  return out;
}
std::vector<double> exact(const Floats& keys, const Floats& values, int rows, int lag, int first, int count) {
  const auto split = [rows](const Floats& x) {
    std::vector<oracle::Vector> all;
    const auto dim = static_cast<std::ptrdiff_t>(x.size()) / rows;
    for (auto row = x.begin(); row != x.end(); row += dim) all.emplace_back(row, row + dim);
    return all;
  };
  const std::vector<double> a = oracle::lagging(split(keys), first, lag),
                            b = oracle::lagging(split(values), first, lag);
  std::vector<double> sums;
  for (int r = first; r < first + count; ++r)
    sums.push_back(a[static_cast<std::size_t>(r)] + b[static_cast<std::size_t>(r)]);
  return sums;
}

TEST(LagKv, IsTheSoftmaxOfDeviationsOnTheNextBlocksScale) {
  // The next block spans 0 to 2 and 0 to 4: rows become (0, 0), (0, 1), deviations 0 and 0.5.
  const double e = std::exp(0.5);
  const Floats keys = {0, 0, 0, 4, /**/ 0, 0, 2, 4}, equal(8, 1.f);
  const std::vector<double> got = scored(keys, equal, 4, 2, 0, 2);
  EXPECT_NEAR(got[0], 1 / (1 + e) + 0.5, 1e-7);
  EXPECT_NEAR(got[1], e / (1 + e) + 0.5, 1e-7);
  EXPECT_EQ(scored(equal, keys, 4, 2, 0, 2), got) << "keys and values count alike";
}

TEST(LagKv, OfNoRowsOfOneAndOfEqualOnes) {
  EXPECT_TRUE(scored({1, 2}, {1, 2}, 1, 3, 0, 0).empty());
  EXPECT_EQ(scored({1, 2}, {1, 2}, 1, 3, 0, 1), std::vector<double>{2});
  EXPECT_EQ(scored(Floats(8, 3.f), Floats(4, 2.f), 4, 2, 0, 4), std::vector<double>(4, 1));
  EXPECT_EQ(scored(Floats(8, 3.f), Floats(4, 2.f), 4, std::numeric_limits<int>::max(), 0, 4),
            std::vector<double>(4, 0.5));
}

TEST(LagKv, OfARowThatIsNotFiniteIsNanAndOthersDoNotSeeIt) {
  const Floats keys = {0, 0, kNan, 1, 0, 4, /**/ 0, kNan, 2, 4, 1, 0}, values(6, 1.f);
  const std::vector<double> got = scored(keys, values, 6, 3, 0, 3);
  const double e = std::exp(0.5);
  EXPECT_NEAR(got[0], 1 / (1 + e) + 1. / 3, 1e-7);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_NEAR(got[2], e / (1 + e) + 1. / 3, 1e-7);
}

TEST(LagKv, IsTheOraclesInAnyShapeAndScale) {
  oracle::Random random(23);
  for (int i = 0; i < 400; ++i) {
    const int n = random.in(1, 40), first = random.in(0, n), count = random.in(0, n - first),
              lag = random.one_in(5) ? 128 : random.in(1, 12);
    const float scale = random.of({1.f, 1e-30f, 1e30f});
    const auto numbers = [&](int dim) {
      Floats x(static_cast<std::size_t>(n * dim));
      for (float& f : x) f = scale * random.real();
      for (int bad = random.in(-3, 2); bad > 0; --bad)
        x[static_cast<std::size_t>(random.in(0, n * dim - 1))] = random.of({kNan, kInf, -kInf});
      return x;
    };
    const Floats keys = numbers(i % 50 == 0 ? 300 : random.in(1, 20)), values = numbers(random.in(1, 20));
    const std::vector<double> got = scored(keys, values, n, lag, first, count),
                              expected = exact(keys, values, n, lag, first, count);
    for (std::size_t r = 0; r < got.size(); ++r) {
      if (std::isnan(expected[r]))
        ASSERT_TRUE(std::isnan(got[r])) << i;
      else
        ASSERT_NEAR(got[r], expected[r], 1e-6) << "case " << i << " row " << r;
    }
  }
}

TEST(LagKv, HasAnOptionThatIsRefusedByName) {
  EXPECT_EQ(oracle::refused([] { buzz::policy("lag_kv:lag=0"); }), "lag");
  EXPECT_EQ(buzz::to_text(buzz::policy("lag_kv:lag=64")), "lag_kv:lag=64");
}

}  // namespace
