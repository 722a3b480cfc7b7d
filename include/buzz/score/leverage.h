#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/finite.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"
#include "buzz/sizes.h"

namespace buzz {

/// Score: the ridge leverage of a row among all cached rows of its head, protected ones too, x' (X'X + lambda I)^-1 x:
/// how far the others are from having its direction. x is its key as it came, or its value as stored, less the
/// mean; lambda is `ridge` of the mean of X'X's diagonal. From 0 to 1, and 0 where all rows are the same. It needs no
/// attention, so it works beside flash kernels. A row that is not finite has NaN, and is no row to the others.
class Leverage final : public Score {
 public:
  /// Of its options.
  explicit Leverage(const RidgeOptions& o = {}) : o_(o) {}
  Needs needs() const override {
    Needs needs;
    (o_.of == LeverageOf::keys ? needs.unrotated_keys : needs.values) = true;
    return needs;
  }
  /// Errors: no dimensions.
  void reserve_dims(int key_dim, int value_dim) override {
    dim_ = o_.of == LeverageOf::keys ? key_dim : value_dim;
    if (dim_ == 0) fail("head_dim", 0, "that of the rows that are shown (ShownRows): leverage has to know it");
    room_.assign(count_of<double>("head_dim * head_dim", {dim_, dim_ + 7}) / 2, 0);
  }
  /// O(rows * head_dim^2 + head_dim^3).
  void importance(const Candidates& c, double* out) override {
    const FloatRows& rows = o_.of == LeverageOf::keys ? *c.unrotated_keys : *c.values;
    const double lambda = add_up(rows, c.head);
    if (lambda > 0) factorise(lambda);
    for (int i = 0; i < c.count; ++i) {
      float leverage = 0;
      if (!read(rows, c.head, c.first + i))
        put_nan(&leverage);
      else if (lambda > 0)
        leverage = static_cast<float>(solve());  // a float hides in which order the sums were made
      out[i] = static_cast<double>(leverage);
    }
  }
  std::size_t bytes() const override { return room_.size() * sizeof(double); }

 private:
  /// Makes X'X of the rows and their mean, less the first finite row: it lies among the others, so that what is taken
  /// away in the end is no more than `rows` times what stays. Returns lambda.
  double add_up(const FloatRows& rows, int head) {
    std::fill(room_.begin(), room_.end(), 0.);
    int count = 0;
    for (int r = 0; r < rows.rows(); ++r) {
      if (!read(rows, head, r)) continue;
      if (count++ == 0) std::copy_n(row(), dim_, origin());
      for (int d = 0; d < dim_; ++d) row()[d] -= origin()[d];
      row_sums::add(row(), dim_, 1, mean());
      for (int d = 0; d < dim_; ++d)
        if (!is_zero(row()[d])) row_sums::add(row(), d + 1, row()[d], line(d));
    }
    double trace = 0;
    for (int d = 0; d < dim_ && count > 0; ++d) {
      mean()[d] /= count;
      row_sums::add(mean(), d + 1, -count * mean()[d], line(d));
      trace += (std::max)(0., line(d)[d]);
    }
    for (int d = 0; d < dim_; ++d) origin()[d] += mean()[d];
    return static_cast<double>(o_.ridge) * trace / dim_;
  }

  /// Cholesky's factor of X'X + lambda I in its place, with the inverse of its diagonal.
  void factorise(double lambda) {
    for (int i = 0; i < dim_; ++i) {
      double* of = line(i);
      for (int j = 0; j < i; ++j) of[j] = (of[j] - row_sums::dot(of, line(j), j)) * line(j)[j];
      // Exact pivots are lambda at least.
      of[i] = 1 / std::sqrt((std::max)(lambda, of[i] + lambda - row_sums::dot(of, of, i)));
    }
  }
  /// The leverage of the row that was read.
  double solve() {
    double sum = 0, *x = row();
    for (int d = 0; d < dim_; ++d) {
      x[d] = (x[d] - origin()[d] - row_sums::dot(line(d), x, d)) * line(d)[d];
      sum += x[d] * x[d];
    }
    return sum;
  }

  /// Is it finite?
  bool read(const FloatRows& rows, int head, int r) {
    float block[max_dims];
    double squares = 0;
    for (int d = 0; d < dim_; d += max_dims) {
      const int n = (std::min)(max_dims, dim_ - d);
      const float* from = rows.read(head, r, 1, d, n, block).data;
      squares += row_sums::squares(from, n);
      std::copy_n(from, n, row() + d);
    }
    return is_finite(squares);
  }
  double* line(int d) { return room_.data() + 3 * dim_ + static_cast<std::ptrdiff_t>(d) * (d + 1) / 2; }
  double* row() { return room_.data(); }
  double* mean() { return room_.data() + dim_; }        // less the first row
  double* origin() { return room_.data() + 2 * dim_; }  // the first row, later the mean

  RidgeOptions o_;
  int dim_ = 0;
  std::vector<double> room_;  // three rows, then a triangle, whose line d has d + 1 numbers
};

}  // namespace buzz
