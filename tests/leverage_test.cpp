#include "buzz/score/leverage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "buzz/policy_list.h"
#include "oracle_twin.h"

namespace {

using buzz::LeverageOf;
using Floats = std::vector<float>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// What the score says of rows [first, first + count) of one head, [rows, dim].
std::vector<double> scored(const Floats& rows, int dim, int first, int count, const buzz::RidgeOptions& o = {}) {
  const int n = static_cast<int>(rows.size()) / dim;
  buzz::Leverage score(o);
  score.reserve(1, n);
  score.reserve_dims(dim, dim);
  const buzz::RowsView<float> view(buzz::View<const float>(rows.data(), 1, n, dim));
  const buzz::FloatRowsOf<float> floats(view);
  std::vector<double> out(static_cast<std::size_t>(count));
  score.importance({0, first, count, nullptr, n, nullptr, &floats, &floats}, out.data());
  return out;
}
std::vector<double> scored(const Floats& rows, int dim) {
  return scored(rows, dim, 0, static_cast<int>(rows.size()) / dim);
}
/// What the oracle says of them.
std::vector<double> exact(const Floats& rows, int dim, double ridge) {
  std::vector<oracle::Vector> all;
  for (auto row = rows.begin(); row != rows.end(); row += dim) all.emplace_back(row, row + dim);
  return oracle::leverage(all, ridge);
}
void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(got[i])) << i;
    else
      EXPECT_NEAR(got[i], expected[i], tolerance) << i;
  }
}

TEST(Leverage, OfOneDimensionIsTheShareOfTheSquares) {
  // Less their mean: -2, -1, 0, 3; squares add up to 14, and 0.14 of ridge.
  expect_near(scored({1, 2, 3, 6}, 1), {4 / 14.14, 1 / 14.14, 0, 9 / 14.14});
}

TEST(Leverage, IsHighWhereNoOtherRowHasTheDirection) {
  const std::vector<double> h = scored({1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 3, 0.01f}, 2);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_LT(h[i], h[4] + 1e-9);
  Floats far = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 3, 9};
  EXPECT_GT(scored(far, 2)[5], 0.8);
}

TEST(Leverage, OfNoRowsOfOneAndOfEqualOnesIsNothing) {
  EXPECT_TRUE(scored({1, 2}, 2, 0, 0).empty());
  EXPECT_EQ(scored({1, 2}, 2), std::vector<double>{0});
  EXPECT_EQ(scored(Floats(12, 0.3f), 3), std::vector<double>(4, 0));
  EXPECT_EQ(scored(Floats(12, 0.f), 3), std::vector<double>(4, 0));
}

TEST(Leverage, OfARowThatIsNotFiniteIsNanAndOthersDoNotSeeIt) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<double> without = scored({1, 2, 3, 5, 4, 0}, 2);
  expect_near(scored({kNan, 1, 1, 2, 3, 5, 1, -inf, 4, 0}, 2),
              {std::nan(""), without[0], without[1], std::nan(""), without[2]});
  for (double h : scored({kNan, 1, inf, 2}, 2)) EXPECT_TRUE(std::isnan(h));
}

TEST(Leverage, IsOfAllRowsWhicheverAreAsked) {
  const Floats rows = {9, 1, 0, 1, 1, 2, 3, 3, 2, 5, 7, -2};
  const std::vector<double> all = scored(rows, 2), some = scored(rows, 2, 2, 3);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(some[i], all[i + 2]);
}

TEST(Leverage, IsTheOraclesInAnyShapeAndScale) {
  oracle::Random random(17);
  for (int i = 0; i < 300; ++i) {
    const int n = random.in(1, 40), dim = i % 50 == 0 ? random.in(257, 300) : random.in(1, 24);
    const float scale = random.of({1.f, 1e-18f, 1e18f}), offset = scale * random.of({0.f, 1.f, 100.f});
    Floats rows(static_cast<std::size_t>(n * dim));
    for (float& x : rows) x = offset + scale * random.real();
    if (random.one_in(3)) rows[static_cast<std::size_t>(random.in(0, n * dim - 1))] = kNan;
    if (random.one_in(3)) rows[static_cast<std::size_t>(random.in(0, n * dim - 1))] = 1e4f * scale;  // as sinks are
    buzz::RidgeOptions o;
    o.ridge = random.of({0.015625f, 1.f, 0.0009765625f});
    o.of = random.of({LeverageOf::keys, LeverageOf::values});
    SCOPED_TRACE(std::to_string(n) + " rows of " + std::to_string(dim) + ", case " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(expect_near(scored(rows, dim, 0, n, o), exact(rows, dim, static_cast<double>(o.ridge))));
  }
}

TEST(Leverage, StaysFromZeroToOneAtTheLeastRidge) {
  oracle::Random random(3);
  Floats rows;
  for (int r = 0; r < 60; ++r)
    for (int d = 0; d < 40; ++d) rows.push_back(d < 2 ? random.real() : d < 20 ? 1e-20f * random.real() : 3.f);
  buzz::RidgeOptions o;
  o.ridge = 1e-6f;
  for (double h : scored(rows, 40, 0, 60, o)) {
    EXPECT_GE(h, 0);
    EXPECT_LE(h, 1);
  }
}

TEST(Leverage, HasOptionsThatAreRefusedByName) {
  for (float bad : {0.f, -1.f, 9e-7f, 2e6f, kNan, std::numeric_limits<float>::infinity()}) {
    buzz::LeverageOptions o;
    o.ridge = bad;
    EXPECT_EQ(oracle::refused([&] { buzz::leverage(o).most_rows(1); }), "ridge") << bad;
  }
  EXPECT_EQ(oracle::refused([] { buzz::policy("leverage:of=rows"); }), "of");
  EXPECT_NO_THROW(buzz::policy("leverage:ridge=1e-6"));
  EXPECT_EQ(buzz::to_text(buzz::policy("leverage:of=values,ridge=0.5,heavy=3,threshold=3")),
            "leverage:of=values,ridge=0.5,heavy=3,threshold=3");
}

TEST(Leverage, HasSavedCodesOfItsOwn) {
  EXPECT_EQ(buzz::leverage().score.code(), 6);
  EXPECT_EQ(buzz::lag_kv().score.code(), 7);
  EXPECT_EQ(buzz::snap_kv().score.code(), 5);
  EXPECT_EQ(buzz::key_outliers().score.code(), 2000003);
}

}  // namespace
