#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/finite.h"
#include "buzz/score/expected_queries.h"
#include "buzz/score/kinds.h"
#include "buzz/score/outer_products.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: what a row's value adds to the others' (CapKV): w v' (I + sum of w v v')^-1 v, the sum over all cached rows
/// of the head, protected ones too. A weight is w = exp(sharpness * the cosine of the row's key and the query that is
/// expected): the mean over the KV head's query heads of their mean queries, of all tokens behind the sink, rotated by
/// the mean of the rotations of the next `horizon` positions. From 0 to 1. In compact positions the next ones are those
/// behind the newest row's place. It needs queries and no probabilities, so it works beside flash kernels. A row that
/// is not finite has NaN, and is no row to the others.
class CapKv final : public Score {
 public:
  /// Of its options.
  explicit CapKv(const CapOptions& o = {}) : o_(o) {}
  Needs needs() const override { return needs_of(o_); }
  void reserve(int kv_heads, int capacity) override {
    heads_ = kv_heads;
    weights_.assign(static_cast<std::size_t>(capacity), 0);
  }
  void reserve_dims(int key_dim, int value_dim) override {
    dim_ = key_dim;
    sums_.reserve(value_dim);
    row_.assign(static_cast<std::size_t>(key_dim), 0);
  }
  void reserve_queries(int query_heads) override { expected_.reserve(query_heads / heads_, dim_); }
  /// O(rows * value_dim^2 + value_dim^3).
  void importance(const Candidates& c, double* out) override {
    expected_.expect(c, [&](double f, double next) { return mean_of_next(f, next, o_.horizon); });
    double* query = expected_.query(0);
    for (int g = 1; g < expected_.group(); ++g) row_sums::add(expected_.query(g), dim_, 1, query);
    const double length = std::sqrt(row_sums::dot(query, query, dim_));
    sums_.clear();
    for (int r = 0; r < c.values->rows(); ++r) {
      double& weight = weights_[static_cast<std::size_t>(r)];
      weight = 0;
      if (!read_row(*c.rotated_keys, c.head, r, row_.data())) continue;
      const double both = length * std::sqrt(row_sums::dot(row_.data(), row_.data(), dim_));
      const double cosine = is_zero(both) ? 0 : row_sums::dot(row_.data(), query, dim_) / both;
      if (!read_row(*c.values, c.head, r, sums_.row())) continue;
      weight = std::exp(static_cast<double>(o_.sharpness) * cosine);
      sums_.add(weight);
    }
    sums_.factorise(1);
    for (int i = 0; i < c.count; ++i) {
      const int r = c.first + i;
      out[i] = weights_[static_cast<std::size_t>(r)];
      if (out[i] > 0 && read_row(*c.values, c.head, r, sums_.row()))
        sums_.multiply(out + i);
      else
        put_nan(out + i);
    }
    sums_.solve();
    row_sums::round(out, c.count);
  }
  std::size_t bytes() const override {
    return expected_.bytes() + sums_.bytes() + (weights_.size() + row_.size()) * sizeof(double);
  }

 private:
  CapOptions o_;
  int heads_ = 0, dim_ = 0;
  ExpectedQueries expected_;
  OuterProducts sums_;           // of values
  std::vector<double> weights_;  // [capacity]; 0: a row that is not finite
  std::vector<double> row_;      // [head_dim]: a key
};

}  // namespace buzz
