#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/finite.h"
#include "buzz/score/kinds.h"
#include "buzz/score/outer_products.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: the ridge leverage of a row among all cached rows of its head, protected ones too, x' (X'X + lambda I)^-1 x:
/// how far the others are from having its direction. x is its key as it came, or its value as stored, less the
/// mean; lambda is `ridge` of the mean of X'X's diagonal. From 0 to 1, and 0 where all rows are the same. It needs no
/// attention, so it works beside flash kernels. A row that is not finite has NaN, and is no row to the others.
class Leverage final : public Score {
 public:
  /// Of its options.
  explicit Leverage(const RidgeOptions& o = {}) : o_(o) {}
  Needs needs() const override { return needs_of(o_); }
  /// Errors: no dimensions.
  void reserve_dims(int key_dim, int value_dim) override {
    dim_ = o_.of == LeverageOf::keys ? key_dim : value_dim;
    if (dim_ == 0) fail("head_dim", 0, "that of the rows that are shown (ShownRows): leverage has to know it");
    sums_.reserve(dim_);
    room_.assign(2 * static_cast<std::size_t>(dim_), 0);
  }
  /// O(rows * head_dim^2 + head_dim^3).
  void importance(const Candidates& c, double* out) override {
    const FloatRows& rows = o_.of == LeverageOf::keys ? *c.unrotated_keys : *c.values;
    const double lambda = add_up(rows, c.head);
    if (lambda > 0) sums_.factorise(lambda);
    for (int i = 0; i < c.count; ++i) {
      out[i] = lambda > 0 ? 1 : 0;
      if (!read_row(rows, c.head, c.first + i, row()))
        put_nan(out + i);
      else if (lambda > 0)
        multiply_by_leverage(out + i);
    }
    sums_.solve();
    row_sums::round(out, c.count);
  }
  std::size_t bytes() const override { return sums_.bytes() + room_.size() * sizeof(double); }

 private:
  /// Makes X'X of the rows and their mean, less the first finite row: it lies among the others, so that what is taken
  /// away in the end is no more than `rows` times what stays. Returns lambda.
  double add_up(const FloatRows& rows, int head) {
    sums_.clear();
    std::fill_n(mean(), dim_, 0.);
    int count = 0;
    for (int r = 0; r < rows.rows(); ++r) {
      if (!read_row(rows, head, r, row())) continue;
      if (count++ == 0) std::copy_n(row(), dim_, origin());
      for (int d = 0; d < dim_; ++d) row()[d] -= origin()[d];
      row_sums::add(row(), dim_, 1, mean());
      sums_.add(1);
    }
    if (count == 0) return 0;
    for (int d = 0; d < dim_; ++d) mean()[d] /= count;
    std::copy_n(mean(), dim_, row());
    sums_.add(-count);
    for (int d = 0; d < dim_; ++d) origin()[d] += mean()[d];
    return static_cast<double>(o_.ridge) * sums_.trace() / dim_;
  }
  /// *out *= the leverage of the row that was read, by the next solve().
  void multiply_by_leverage(double* out) {
    for (int d = 0; d < dim_; ++d) row()[d] -= origin()[d];
    sums_.multiply(out);
  }
  double* row() { return sums_.row(); }
  double* mean() { return room_.data(); }           // less the first row
  double* origin() { return room_.data() + dim_; }  // the first row, later the mean

  RidgeOptions o_;
  int dim_ = 0;
  OuterProducts sums_;        // X'X
  std::vector<double> room_;  // two rows
};

}  // namespace buzz
