#include "buzz/finite.h"

#include <gtest/gtest.h>

#include <limits>

namespace {

/// A number made of its bits, of which the compiler knows nothing, whatever its flags.
template <class T, class Bits>
T number(Bits bits) {
  static volatile Bits kept;
  kept = bits;
  const Bits now = kept;
  T x;
  std::memcpy(&x, &now, sizeof x);
  return x;
}
float single(std::uint32_t bits) { return number<float>(bits); }
double twice(std::uint64_t bits) { return number<double>(bits); }

TEST(Finite, AreNumbersThatAreNeitherNanNorInfinite) {
  for (std::uint32_t sign : {0u, 0x80000000u}) {
    for (std::uint32_t bits : {0u, 1u, 0x007FFFFFu, 0x00800000u, 0x3F800000u, 0x7F7FFFFFu})
      EXPECT_TRUE(buzz::is_finite(single(sign | bits))) << bits;
    for (std::uint32_t bits : {0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu})
      EXPECT_FALSE(buzz::is_finite(single(sign | bits))) << bits;
  }
  for (std::uint64_t sign : {0ull, 0x8000000000000000ull}) {
    for (std::uint64_t bits : {0ull, 1ull, 0x000FFFFFFFFFFFFFull, 0x3FF0000000000000ull, 0x7FEFFFFFFFFFFFFFull})
      EXPECT_TRUE(buzz::is_finite(twice(sign | bits))) << bits;
    for (std::uint64_t bits : {0x7FF0000000000000ull, 0x7FF0000000000001ull, 0x7FF8000000000000ull})
      EXPECT_FALSE(buzz::is_finite(twice(sign | bits))) << bits;
  }
}

TEST(Finite, NanIsNothingElse) {
  for (std::uint32_t bits : {0u, 1u, 0x7F7FFFFFu, 0x7F800000u, 0xFF800000u}) EXPECT_FALSE(buzz::is_nan(single(bits)));
  for (std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFFC00000u, 0xFFFFFFFFu})
    EXPECT_TRUE(buzz::is_nan(single(bits)));
  EXPECT_FALSE(buzz::is_nan(twice(0x7FF0000000000000ull)));
  EXPECT_TRUE(buzz::is_nan(twice(0x7FF0000000000001ull)));
  EXPECT_TRUE(buzz::is_nan(twice(0xFFF8000000000000ull)));
}

TEST(Finite, OfWhatArithmeticMadeIsAsked) {
  const float big = single(0x7F7FFFFFu), two = single(0x40000000u), infinite = single(0x7F800000u);
  volatile float stored = big * two;
  const float product = stored;
  EXPECT_FALSE(buzz::is_finite(product));
  EXPECT_FALSE(buzz::is_nan(product));
  const float nothing = infinite * single(0);
  EXPECT_TRUE(buzz::is_nan(nothing));
  EXPECT_FALSE(buzz::is_finite(nothing));
}

TEST(Finite, PutNanIsNotReplaced) {
  float x, y = single(0x3F800000u);
  buzz::put_nan(&x);
  EXPECT_TRUE(buzz::is_nan(x));
  const float chosen = y > single(0) ? x : y;
  EXPECT_TRUE(buzz::is_nan(chosen));
}

TEST(AsWritten, KeepsWhatRoundingTakes) {
  BUZZ_AS_WRITTEN
  const double large = twice(0x4330000000000000ull) * 1.5, x = twice(0x3FF4CCCCCCCCCCCDull);  // 1.5 * 2^52 and 1.3
  const double sum = buzz::as_written(x + large), whole = buzz::as_written(sum - large);
  EXPECT_EQ(whole, 1);
}

}  // namespace
