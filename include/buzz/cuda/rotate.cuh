#pragma once

#include "buzz/cos_sin.h"
#include "buzz/cuda/types.cuh"

namespace buzz {
namespace cuda {

/// Rotary positions (RoFormer, arXiv 2104.09864), as buzz::Rotation makes them on the host.
struct DeviceRotation {
  int dims = 0;                         ///< elements of a head that are rotated, even; 0: none
  int first = 0;                        ///< the first of them
  bool interleaved = true;              ///< pair i is (2i, 2i + 1) of them; else (i, i + dims / 2)
  bool compact = false;                 ///< a row's position is its place in the cache
  double factor = 1;                    ///< Rope::attention_factor
  const double* frequencies = nullptr;  ///< [dims / 2], radians a position, on the device

  /// The cosine and the sine of pair i at a position, times `magnitude`.
  BUZZ_DEVICE void angle(double position, double magnitude, int i, float* cos, float* sin) const {
    double c, s;
    cos_sin(position * frequencies[i], &c, &s);
    *cos = static_cast<float>(magnitude * c);
    *sin = static_cast<float>(magnitude * s);
  }

  /// The two elements of a pair.
  /// @{
  BUZZ_DEVICE int first_of(int pair) const { return first + (interleaved ? 2 * pair : pair); }
  BUZZ_DEVICE int second_of(int pair) const { return first + (interleaved ? 2 * pair + 1 : pair + dims / 2); }
  /// @}

  /// Is element d of a head rotated?
  BUZZ_DEVICE bool rotates(int d) const { return d >= first && d - first < dims; }

  /// Element d of `row` [head_dim], rotated; angles: [dims], cosines, then sines, `factor` included.
  template <class T>
  BUZZ_DEVICE float rotated(const T* row, const float* angles, int d) const {
    if (!rotates(d)) return to_float(row[d]);
    const int half = dims / 2, pair = interleaved ? (d - first) / 2 : (d - first) % half;
    const float a = to_float(row[first_of(pair)]), b = to_float(row[second_of(pair)]);
    const float cos = angles[pair], sin = angles[half + pair];
    return d == first_of(pair) ? a * cos - b * sin : a * sin + b * cos;
  }
};

}  // namespace cuda
}  // namespace buzz
