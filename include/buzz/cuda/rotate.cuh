#pragma once

#include "buzz/cos_sin.h"
#include "buzz/cuda/types.cuh"

namespace buzz {
namespace cuda {

/// Rotary positions (RoFormer, arXiv 2104.09864), as buzz::Rotation makes them on the host.
struct Turning {
  int dims = 0;  // leading elements of a head that are rotated; 0: none
  bool interleaved = true;
  bool compact = false;                 // a row's position is its place in the cache
  double factor = 1;                    // of attention
  const double* frequencies = nullptr;  // [dims / 2], radians a position

  /// The cosine and the sine of pair i at a position.
  BUZZ_DEVICE void angle(double position, double magnitude, int i, float* cos, float* sin) const {
    double c, s;
    cos_sin(position * frequencies[i], &c, &s);
    *cos = static_cast<float>(magnitude * c);
    *sin = static_cast<float>(magnitude * s);
  }

  BUZZ_DEVICE int first_of(int pair) const { return interleaved ? 2 * pair : pair; }
  BUZZ_DEVICE int second_of(int pair) const { return interleaved ? 2 * pair + 1 : pair + dims / 2; }

  /// Element d of a rotated row; angles: [dims], cosines, then sines.
  template <class T>
  BUZZ_DEVICE float turned(const T* row, const float* angles, int d) const {
    if (d >= dims) return to_float(row[d]);
    const int half = dims / 2, pair = interleaved ? d / 2 : d % half;
    const float a = to_float(row[first_of(pair)]), b = to_float(row[second_of(pair)]);
    const float cos = angles[pair], sin = angles[half + pair];
    return d == first_of(pair) ? a * cos - b * sin : a * sin + b * cos;
  }
};

}  // namespace cuda
}  // namespace buzz
