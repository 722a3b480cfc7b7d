#pragma once

#include <algorithm>
#include <cmath>

#include "buzz/finite.h"

namespace buzz {

/// Gives those of values [count] that are finite the mean 0 and the deviation 1 (of all of them, not of a sample);
/// equal ones become 0. The others stay as they are. Returns how many are finite. O(count).
inline int standardise_finite(double* values, int count) {
  double sum = 0, squares = 0;
  int finite = 0;
  for (int i = 0; i < count; ++i) {
    if (!is_finite(values[i])) continue;
    sum += values[i];
    ++finite;
  }
  const double mean = sum / (std::max)(1, finite);
  for (int i = 0; i < count; ++i)
    if (is_finite(values[i])) squares += (values[i] - mean) * (values[i] - mean);
  const double deviation = std::sqrt(squares / (std::max)(1, finite));
  for (int i = 0; i < count; ++i)
    if (is_finite(values[i])) values[i] = is_zero(deviation) ? 0 : (values[i] - mean) / deviation;
  return finite;
}

/// The same of all of them: one that is not finite makes all NaN.
inline void standardise(double* values, int count) {
  if (standardise_finite(values, count) == count) return;
  float nan;
  put_nan(&nan);
  std::fill_n(values, count, static_cast<double>(nan));
}

}  // namespace buzz
