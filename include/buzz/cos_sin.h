#pragma once

#include <cstdint>
#include <cstring>

#include "buzz/config.h"

namespace buzz {

/// The cosine and the sine of an angle of magnitude below 2^47, to 1e-13 and what the angle's own last bit is worth. By
/// Taylor's series within an eighth of a turn: no branch and no call, so that a loop over frequencies is vector code.
BUZZ_HOST_DEVICE inline void cos_sin(double angle, double* cos, double* sin) {
  // A quarter of a turn in three parts; the first has so few bits that n times it is exact for angles below 2^24.
  constexpr double quarter = 0x1.921fb54442d18p0, upper = 0x1.921fb54p0, lower = quarter - upper;
  constexpr double rest = 6.123233995736766e-17;
  constexpr double rounds = 0x1.8p52;  // a sum with it is a whole number, whose low bits are that number's
  const double sum = angle * (1 / quarter) + rounds, n = sum - rounds;
  const double x = ((angle - n * upper) - n * lower) - n * rest, y = x * x;
  double s = y * (1. / 6227020800) - 1. / 39916800;
  s = s * y + 1. / 362880;
  s = s * y - 1. / 5040;
  s = s * y + 1. / 120;
  s = s * y - 1. / 6;
  s = (s * y + 1) * x;
  double c = 1. / 479001600 - y * (1. / 87178291200);
  c = c * y - 1. / 3628800;
  c = c * y + 1. / 40320;
  c = c * y - 1. / 720;
  c = c * y + 1. / 24;
  c = c * y - 1. / 2;
  c = c * y + 1;
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
