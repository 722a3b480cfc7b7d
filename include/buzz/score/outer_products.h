#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/finite.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"
#include "buzz/sizes.h"

namespace buzz {

/// A sum A of outer products w x x' of rows x, in double, and then x' (A + lambda I)^-1 x of any, by Cholesky's factor.
class OuterProducts {
 public:
  /// Room for rows of `dim` numbers. Errors: dim * dim past all memory.
  void reserve(int dim) {
    dim_ = dim;
    triangle_.assign(count_of<double>("head_dim * head_dim", {dim, dim + 1}) / 2, 0);
  }
  /// A = 0.
  void clear() { std::fill(triangle_.begin(), triangle_.end(), 0.); }
  /// A += weight * x x', x [dim]. O(dim^2).
  void add(const double* x, double weight) {
    for (int d = 0; d < dim_; ++d)
      if (!is_zero(x[d])) row_sums::add(x, d + 1, weight * x[d], line(d));
  }
  /// The sum of A's diagonal, of what is above 0 there.
  double trace() const {
    double sum = 0;
    for (int d = 0; d < dim_; ++d) sum += (std::max)(0., line(d)[d]);
    return sum;
  }
  /// Makes Cholesky's factor of A + lambda I in its place, with the inverse of its diagonal; lambda > 0, A positive
  /// semidefinite. O(dim^3).
  void factorise(double lambda) {
    for (int i = 0; i < dim_; ++i) {
      double* of = line(i);
      for (int j = 0; j < i; ++j) of[j] = (of[j] - row_sums::dot(of, line(j), j)) * line(j)[j];
      // Exact pivots are lambda at least.
      of[i] = 1 / std::sqrt((std::max)(lambda, of[i] + lambda - row_sums::dot(of, of, i)));
    }
  }
  /// x' (A + lambda I)^-1 x of a row [dim], in whose place is then what it was made of. O(dim^2).
  double solve(double* x) const {
    double sum = 0;
    for (int d = 0; d < dim_; ++d) {
      x[d] = (x[d] - row_sums::dot(line(d), x, d)) * line(d)[d];
      sum += x[d] * x[d];
    }
    return sum;
  }
  std::size_t bytes() const { return triangle_.size() * sizeof(double); }  ///< allocated

 private:
  double* line(int d) { return triangle_.data() + static_cast<std::ptrdiff_t>(d) * (d + 1) / 2; }
  const double* line(int d) const { return triangle_.data() + static_cast<std::ptrdiff_t>(d) * (d + 1) / 2; }

  int dim_ = 0;
  std::vector<double> triangle_;  // line d has d + 1 numbers
};

/// Reads a row, [dim], as doubles. Is it finite?
inline bool read_row(const FloatRows& rows, int head, int r, double* to) {
  float block[max_dims];
  double squares = 0;
  for (int d = 0, dim = rows.dim(); d < dim; d += max_dims) {
    const int n = (std::min)(max_dims, dim - d);
    const float* from = rows.read(head, r, 1, d, n, block).data;
    squares += row_sums::squares(from, n);
    std::copy_n(from, n, to + d);
  }
  return is_finite(squares);
}

}  // namespace buzz
