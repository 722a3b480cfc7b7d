#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "buzz/buzz_cache.h"
#include "buzz/cuda/types.cuh"
#include "typed.h"

// A number past a stored type's largest becomes that, with its sign: in silence it would be infinite, and every output
// after it NaN.

namespace {

using Values = std::vector<float>;
using Half = Eigen::half;
using Brain = Eigen::bfloat16;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatMost = std::numeric_limits<float>::max();

template <class T>
float most() {
  return static_cast<float>(std::numeric_limits<T>::max());
}

template <class T>
std::vector<T> converted(const Values& from) {
  std::vector<T> to(from.size());
  buzz::convert_row(from.data(), static_cast<int>(from.size()), to.data());
  return to;
}

/// In vector code and in what follows it, beside numbers, of any count.
template <class T>
void expect_saturated(const Values& past) {
  for (std::size_t count = 1; count <= 40; ++count)
    for (std::size_t at = 0; at < count; ++at)
      for (float x : past)
        for (float sign : {1.f, -1.f}) {
          Values row(count, 1.5f);
          row[at] = sign * x;
          const std::vector<T> to = converted<T>(row);
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(static_cast<float>(to[i]), i == at ? sign * most<T>() : 1.5f) << x << " of " << count;
        }
}

TEST(Saturation, OfHalfIsAtItsLargest) { expect_saturated<Half>({65504, 65519, 65520, 70000, 1e10f, kFloatMost}); }
TEST(Saturation, OfBfloat16IsAtItsLargest) { expect_saturated<Brain>({0x1.FEp127f, 0x1.FFp127f, kFloatMost}); }

template <class T>
void expect_as_they_are() {
  for (std::size_t count : {1u, 8u, 16u, 33u}) {
    for (float x : {kInf, -kInf})
      for (const T& to : converted<T>(Values(count, x))) EXPECT_EQ(static_cast<float>(to), x);
    for (const T& to : converted<T>(Values(count, kNan))) {
      const float back = buzz::kernels::to_float(to);
      EXPECT_TRUE(buzz::is_nan(back));
    }
  }
}
TEST(Saturation, LeavesInfinityAndNanAsTheyAre) {
  expect_as_they_are<Half>();
  expect_as_they_are<Brain>();
}

TEST(Saturation, OfOneStoredTypeAsAnother) {
  const Brain from[] = {Brain(1e30f), Brain(-70144.f), Brain(3.f)};
  Half to[3];
  buzz::convert_row(from, 3, to);
  EXPECT_EQ(static_cast<float>(to[0]), 65504);
  EXPECT_EQ(static_cast<float>(to[1]), -65504);
  EXPECT_EQ(static_cast<float>(to[2]), 3);
}

/// A cache of T in which a token's key and value are x in all places.
template <class T>
typed::Cache<T, typed::Full> cache_of(float x, int dim, const buzz::Rope& rope, std::vector<T>* out) {
  typed::Cache<T, typed::Full> cache({1, 1, dim}, {}, rope);
  const Values row(static_cast<std::size_t>(dim), x), q(static_cast<std::size_t>(dim), 1e-3f);
  out->resize(row.size());
  for (int token = 0; token < 3; ++token)
    cache.attend(buzz::view(q, 1, 1, dim), buzz::view(row, 1, 1, dim), buzz::view(row, 1, 1, dim),
                 buzz::view(*out, 1, 1, dim));
  return cache;
}

template <class T>
void expect_finite_caches(float x, const std::vector<buzz::Rope>& ropes) {
  std::vector<T> out;
  for (const buzz::Rope& rope : ropes)
    for (int dim : {2, 8, 20, 64}) {
      const auto cache = cache_of<T>(x, dim, rope, &out);
      for (int row = 0; row < 3; ++row)
        for (int d = 0; d < dim; ++d) {
          const float key = static_cast<float>(cache.keys().row(0, row)[d]);
          EXPECT_LE(std::fabs(key), most<T>());
          EXPECT_TRUE(rope.rotates() || key == most<T>()) << key;
          EXPECT_EQ(static_cast<float>(cache.values().row(0, row)[d]), most<T>());
        }
      for (const T& o : out)  // of bfloat16's largest, the sum of three is no float
        EXPECT_TRUE((std::is_same<T, Brain>::value) || static_cast<float>(o) == most<T>());
    }
}
TEST(Saturation, OfAnAppendedKeyAndValue) {
  expect_finite_caches<Half>(70000, {buzz::Rope{}, buzz::Rope{10000.0}});
  expect_finite_caches<Brain>(kFloatMost, {buzz::Rope{}});  // rotated, it is no float
}

/// Rotated by an eighth of a turn, a pair (x, x) has a component of 1.4 x.
buzz::Rope eighths() {
  buzz::Rope rope;
  rope.dims = 2;
  rope.frequencies = {0.78539816339744831};
  return rope;
}

TEST(Saturation, OfARotatedKey) {
  std::vector<Half> out;
  const auto cache = cache_of<Half>(60000, 2, eighths(), &out);
  EXPECT_EQ(static_cast<float>(cache.keys().row(0, 1)[1]), 65504);
}

TEST(Saturation, OfAKeyThatIsRotatedOn) {
  const buzz::Rotation rotation(eighths(), 2);
  buzz::Store<Half> store({1, 1, 2}, 4);
  const Values rows = {1, 1, 60000, 60000};
  store.append(0, buzz::View<const float>(rows.data(), 2, 1, 2), buzz::View<const float>(rows.data(), 2, 1, 2),
               rotation, nullptr);
  buzz::KeptRows keep(1, 2);
  keep.begin(2, 1);
  keep.list(0)[0] = 1;
  store.compact(keep);
  float angles[2];
  store.rotate_moved(keep, rotation, angles);
  EXPECT_EQ(static_cast<float>(store.keys(1).values.row(0, 0)[0]), 65504);
}

TEST(Saturation, OfAnOutput) {
  typed::Cache<float, typed::Full> cache({1, 1, 4});
  const Values q(4, 1.f), k(4, 1.f), v = {70000, -1e30f, 65504, 1};
  std::vector<Half> out(4);
  cache.attend(buzz::view(q, 1, 1, 4), buzz::view(k, 1, 1, 4), buzz::view(v, 1, 1, 4), buzz::view(out, 1, 1, 4));
  EXPECT_EQ(static_cast<float>(out[0]), 65504);
  EXPECT_EQ(static_cast<float>(out[1]), -65504);
  EXPECT_EQ(static_cast<float>(out[2]), 65504);
  EXPECT_EQ(static_cast<float>(out[3]), 1);
}

TEST(Saturation, CodesOfTheLargestFloatsReadAsNumbers) {
  buzz::Rows<std::int8_t> rows(1, 1, 3);
  const Values in = {kFloatMost, -kFloatMost, 0};
  Values out(3);
  rows.put(0, 0, in.data(), out.data());
  rows.get(0, 0, out.data());
  EXPECT_LE(out[0], kFloatMost);
  EXPECT_GT(out[0], 0.999f * kFloatMost);
  EXPECT_EQ(out[1], -out[0]);
}

TEST(Saturation, OnTheDeviceIsTheHosts) {
  for (float x : {65504.f, 65519.f, 65520.f, 1e10f, kFloatMost, 1.f, 6e-8f, kInf})
    for (float sign : {1.f, -1.f}) {
      const float value = sign * x;
      Half half;
      Brain brain;
      buzz::convert_row(&value, 1, &half);
      buzz::convert_row(&value, 1, &brain);
      EXPECT_EQ(buzz::cuda::from_float<Half>(value), half) << value;
      EXPECT_EQ(buzz::cuda::from_float<Brain>(value), brain) << value;
    }
}

}  // namespace
