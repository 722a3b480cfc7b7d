#pragma once

#include <cstddef>
#include <cstdint>

#include "buzz/rows.h"

namespace buzz {

/// Sums over the values of a stored row, in double: the squares of floats neither overflow nor vanish there, and the
/// order of the sum does not show once the result is a float. Lanes have a constant number, so that compilers make
/// vector code.
namespace row_sums {

constexpr int lanes = 16;
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

/// The sum of term(i) over [0, n).
template <class Term>
double sum(int n, Term&& term) {
  double lane[lanes] = {};
  const int whole = n - n % lanes;
  for (int i = 0; i < whole; i += lanes)
    for (int j = 0; j < lanes; ++j) lane[j] += term(i + j);
  for (int i = whole; i < n; ++i) lane[i - whole] += term(i);
  double total = 0;
  for (const double x : lane) total += x;
  return total;
}

inline double squares(const float* x, int n) {
  return sum(n, [x](int i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
}

inline double dot(const float* x, const double* y, int n) {
  return sum(n, [x, y](int i) { return static_cast<double>(x[i]) * y[i]; });
}
inline double distance(const float* x, const double* y, int n) {  // squared
  return sum(n, [x, y](int i) { return (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]); });
}
/// sum[0..n) += weight * x.
inline void add(const float* x, int n, double weight, double* sum) {
  const int whole = n - n % lanes;
  for (int i = 0; i < whole; i += lanes)
    for (int j = 0; j < lanes; ++j) sum[i + j] += weight * static_cast<double>(x[i + j]);
  for (int i = whole; i < n; ++i) sum[i] += weight * static_cast<double>(x[i]);
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

}  // namespace row_sums
}  // namespace buzz
