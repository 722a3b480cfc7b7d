#pragma once

#include <cstddef>
#include <cstdint>

#include "buzz/rows.h"

namespace buzz {

/// Sums over the values of a stored row, in double: the squares of floats neither overflow nor vanish there, and the
/// order of a sum hardly ever shows once the result is a float.
namespace row_sums {
/// As kernels.
inline namespace BUZZ_ISA {

using kernels::double_packet_size;
using kernels::DoublePacket;

/// Values that are read at a time.
constexpr int block = 256;

/// Values [first, first + n), n <= block, of a row as floats: its own, or made in `room`, [block].
template <class T>
const float* read(const RowsView<T>& rows, int head, int row, int first, int n, float* room) {
  const T* from = rows.values.row(head, row) + first;
  const bool scaled = !rows.scales.empty();
  if constexpr (std::is_same<T, float>::value)
    if (!scaled) return from;
  kernels::convert(from, n, room);
  if (scaled) {
    const float scale = rows.scales.row(0, head)[row];
    for (int i = 0; i < n; ++i) room[i] *= scale;
  }
  return room;
}

/// The sum of term(packet at i, value by value at i) over [0, n).
template <class Packets, class Values>
EIGEN_ALWAYS_INLINE double sum(int n, Packets&& packets, Values&& values) {
  using namespace Eigen::internal;
  constexpr int width = double_packet_size;
  DoublePacket even = pset1<DoublePacket>(0.), odd = even;
  int i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    even = packets(i, even);
    odd = packets(i + width, odd);
  }
  double total = predux(padd(even, odd));
  for (; i < n; ++i) total += values(i);
  return total;
}

/// The sum of squares of x, [n].
inline double squares(const float* x, int n) {
  using namespace Eigen::internal;
  return sum(
      n,
      [x](int i, const DoublePacket& to) {
        const DoublePacket p = kernels::load_doubles(x + i);
        return pmadd(p, p, to);
      },
      [x](int i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
}
/// A packet of floats, or of doubles.
/// @{
inline DoublePacket load(const float* x) { return kernels::load_doubles(x); }
inline DoublePacket load(const double* x) { return Eigen::internal::ploadu<DoublePacket>(x); }
/// @}
/// The dot product of x and y, [n].
template <class X, class Y>
double dot(const X* x, const Y* y, int n) {
  using namespace Eigen::internal;
  return sum(
      n, [x, y](int i, const DoublePacket& to) { return pmadd(load(x + i), load(y + i), to); },
      [x, y](int i) { return static_cast<double>(x[i]) * static_cast<double>(y[i]); });
}
/// Squared.
inline double distance(const float* x, const double* y, int n) {
  using namespace Eigen::internal;
  return sum(
      n,
      [x, y](int i, const DoublePacket& to) {
        const DoublePacket p = psub(kernels::load_doubles(x + i), ploadu<DoublePacket>(y + i));
        return pmadd(p, p, to);
      },
      [x, y](int i) { return (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]); });
}
/// sum[0..n) += weight * x.
template <class X>
void add(const X* x, int n, double weight, double* sum) {
  using namespace Eigen::internal;
  const DoublePacket w = pset1<DoublePacket>(weight);
  int i = 0;
  for (; i + double_packet_size <= n; i += double_packet_size) pstoreu(sum + i, pmadd(w, load(x + i), load(sum + i)));
  for (; i < n; ++i) sum[i] += weight * static_cast<double>(x[i]);
}

/// Each of x, [n], becomes a float, which hides in which order the sums were made.
inline void round(double* x, int n) {
  for (int i = 0; i < n; ++i) x[i] = static_cast<double>(static_cast<float>(x[i]));
}

/// The sum of a row's squares. O(head_dim).
template <class T>
double squares(const RowsView<T>& rows, int head, int row) {
  float room[block];
  double total = 0;
  const int dim = rows.values.shape(2);
  for (int d = 0; d < dim; d += block) {
    const int n = dim - d < block ? dim - d : block;
    total += squares(read(rows, head, row, d, n, room), n);
  }
  return total;
}

}  // namespace BUZZ_ISA
}  // namespace row_sums
}  // namespace buzz
