#pragma once

#include <cstdint>
#include <cstring>

#include "buzz/finite.h"

namespace buzz {

/// The cosine and the sine of an angle of magnitude below 2^47, to 1e-13 and the error of the angle's own last bit. By
/// Taylor's series within an eighth of a turn: no branch and no call, so that a loop over frequencies is vector code.
/// In the order written under -ffast-math too: n, which is a difference of sums, would be lost.
BUZZ_HOST_DEVICE inline void cos_sin(double angle, double* cos, double* sin) {
  BUZZ_AS_WRITTEN
  // A quarter of a circle in three parts; the first has so few bits that n times it is exact for angles below 2^24.
  constexpr double quarter = 0x1.921fb54442d18p0, upper = 0x1.921fb54p0, lower = quarter - upper;
  constexpr double rest = 6.123233995736766e-17;
  constexpr double rounds = 0x1.8p52;  // a sum with it is a whole number, whose low bits are that number's
  const double sum = as_written(as_written(angle * (1 / quarter)) + rounds), n = as_written(sum - rounds);
  const double first = as_written(angle - as_written(n * upper)), second = as_written(first - as_written(n * lower));
  const double x = as_written(second - as_written(n * rest)), y = as_written(x * x);
  const auto step = [y](double a, double b) {
    BUZZ_AS_WRITTEN
    return as_written(as_written(a * y) + b);
  };
  double s = step(1. / 6227020800, -1. / 39916800);
  s = step(s, 1. / 362880);
  s = step(s, -1. / 5040);
  s = step(s, 1. / 120);
  s = step(s, -1. / 6);
  s = as_written(step(s, 1) * x);
  double c = step(-1. / 87178291200, 1. / 479001600);
  c = step(c, -1. / 3628800);
  c = step(c, 1. / 40320);
  c = step(c, -1. / 720);
  c = step(c, 1. / 24);
  c = step(c, -1. / 2);
  c = step(c, 1);
  // Odd quarters swap the two; the second half of a turn has sines, its neighbours cosines, below 0.
  std::uint64_t quarters, sine, cosine;
  std::memcpy(&quarters, &sum, sizeof sum);
  std::memcpy(&sine, &s, sizeof s);
  std::memcpy(&cosine, &c, sizeof c);
  const std::uint64_t swap = (sine ^ cosine) & (0 - (quarters & 1));
  sine = (sine ^ swap) ^ ((quarters & 2) << 62);
  cosine = (cosine ^ swap) ^ (((quarters + 1) & 2) << 62);
  std::memcpy(sin, &sine, sizeof s);
  std::memcpy(cos, &cosine, sizeof c);
}

}  // namespace buzz
