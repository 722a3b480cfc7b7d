#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "typed.h"

namespace {

using ByNorm = typed::Policy<typed::ValueNorm, buzz::TopK>;
using Values = std::vector<float>;
using Rows = std::vector<int>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// The `heavy` rows kept of each head's; values [heads, rows, dim], keys that say the contrary.
template <class T>
std::vector<Rows> kept(const std::vector<T>& values, int heads, int rows, int heavy) {
  ByNorm::Options o;
  o.window = 0;
  o.heavy = heavy;
  ByNorm policy(o, heads, rows);
  policy.append(rows);
  std::vector<T> keys;
  for (T x : values) keys.push_back(static_cast<T>(1 - static_cast<float>(x)));
  const int dim = static_cast<int>(values.size()) / (heads * rows);
  const buzz::View<const T> k = buzz::view(keys, heads, rows, dim), v = buzz::view(values, heads, rows, dim);
  const Values ones(static_cast<std::size_t>(heads * rows), 1.f);
  const buzz::View<const float> scales(ones.data(), buzz::has_scale<T> ? 1 : 0, heads, rows);
  const buzz::KeptRows& keep = policy.select(buzz::RowsView<T>(k, scales), buzz::RowsView<T>(v, scales));
  std::vector<Rows> result;
  for (int h = 0; h < heads; ++h) result.emplace_back(keep.rows(h).begin(), keep.rows(h).end());
  return result;
}

/// A row's importance, one row of values of one head.
float norm(const Values& value) {
  const int dim = static_cast<int>(value.size());
  const buzz::RowsView<float> rows(buzz::View<const float>(value.data(), 1, 1, dim));
  const buzz::FloatRowsOf<float> values(rows);
  double importance = -1;
  buzz::ValueNorm().importance({0, 0, 1, nullptr, 1, nullptr, &values}, &importance);
  return static_cast<float>(importance);
}

TEST(ValueNorm, IsTheEuclideanLength) {
  EXPECT_EQ(norm({3, -4}), 5);
  EXPECT_EQ(norm({1, 1, 1, -1}), 2);
  EXPECT_EQ(norm({0, 0}), 0);
}

TEST(ValueNorm, OfHeadsOfAnySize) {
  for (int dim : {1, 7, 15, 16, 17, 64, 255, 256, 257, 600})
    EXPECT_FLOAT_EQ(norm(Values(static_cast<std::size_t>(dim), 2)), 2 * std::sqrt(static_cast<float>(dim)));
}

TEST(ValueNorm, NeitherOverflowsNorVanishes) {
  EXPECT_FLOAT_EQ(norm({3e37f, 4e37f}), 5e37f);
  EXPECT_FLOAT_EQ(norm({3e-38f, 4e-38f}), 5e-38f);
}

TEST(ValueNorm, KeepsTheLongestValuesOfEachHead) {
  EXPECT_EQ(
      kept<float>({1, 0, /**/ 0, -3, /**/ 2, 0, /**/ 0, 0, /*head 1*/ 0, 1, /**/ 0, 0, /**/ 0, 0, /**/ 5, 5}, 2, 4, 2),
      (std::vector<Rows>{{1, 2}, {0, 3}}));
}

TEST(ValueNorm, TiesGoToTheLowestRow) {
  EXPECT_EQ(kept<float>({3, 4, /**/ 5, 0, /**/ 0, -5}, 1, 3, 2)[0], (Rows{0, 1}));
}

TEST(ValueNorm, ReadsOtherTypes) {
  using Half = Eigen::half;
  EXPECT_EQ(kept<Half>({Half(1), Half(-3), Half(2)}, 1, 3, 1)[0], (Rows{1}));
  EXPECT_EQ(kept<std::int8_t>({1, -3, 2}, 1, 3, 1)[0], (Rows{1}));
}

TEST(ValueNorm, CountsEachRowsScale) {
  const std::vector<std::int8_t> codes = {127, 100, 50};
  const Values scales = {0.1f, 1, 3};
  const buzz::RowsView<std::int8_t> rows(buzz::view(codes, 1, 3, 1), buzz::view(scales, 1, 1, 3));
  const buzz::FloatRowsOf<std::int8_t> values(rows);
  double importance[3];
  buzz::ValueNorm().importance({0, 0, 3, nullptr, 3, nullptr, &values}, importance);
  EXPECT_FLOAT_EQ(static_cast<float>(importance[0]), 12.7f);
  EXPECT_EQ(importance[1], 100);
  EXPECT_EQ(importance[2], 150);
}

TEST(ValueNorm, OfNanLosesAndOfInfinityWins) { EXPECT_EQ(kept<float>({kNan, 1, -kInf, 2}, 1, 4, 2)[0], (Rows{2, 3})); }

}  // namespace
