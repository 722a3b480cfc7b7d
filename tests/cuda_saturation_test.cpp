// What saturation_test says of a rotated key, of one on the device.

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "cuda_twin.h"

namespace {

/// A key of x in all places, rotated by an eighth of a turn: a pair (x, x) has a component of 1.4 x.
template <class T>
void expect_saturated(float x) {
  const int dim = 64;
  buzz::Rope eighths;
  eighths.dims = 2;
  eighths.frequencies = {0.78539816339744831};
  emulated::Twin<T> twin({1, 1, dim}, {}, buzz::beehive(), eighths);
  const emulated::Floats row(dim, x), q(dim, 0.f);
  for (int token = 0; token < 3; ++token)
    for (float o : twin.attend(q, row, emulated::Floats(dim, 1.f), {})) EXPECT_EQ(o, 1);
  EXPECT_EQ(twin.cache.keys(0).row(0, 0, 1)[1], std::numeric_limits<T>::max());
}

TEST(CudaSaturation, OfARotatedKey) {
  expect_saturated<Eigen::half>(60000);
  expect_saturated<Eigen::bfloat16>(2.4e38f);
}

}  // namespace
