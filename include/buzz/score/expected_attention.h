#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/finite.h"
#include "buzz/score/expected_queries.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: the attention that queries to come are expected to give (arXiv 2510.00636, by the queries' mean alone). Each
/// query head's mean query, of all tokens behind the sink, is rotated by the mean of the rotations of the next
/// `horizon` positions; a softmax over the candidates makes of its logits what it gives; the importance is the mean
/// over the KV head's query heads, times the length of the value. In compact positions the next ones are those behind
/// the newest row's place. It needs queries and no probabilities, so it works beside flash kernels. A row that is not
/// finite has NaN and no part in the softmax.
class ExpectedAttention final : public Score {
 public:
  /// Of its options.
  explicit ExpectedAttention(const ExpectedOptions& o = {}) : o_(o) {}
  Needs needs() const override { return needs_of(o_); }
  void reserve(int kv_heads, int capacity) override {
    heads_ = kv_heads;
    capacity_ = capacity;
  }
  void reserve_dims(int key_dim, int) override { dim_ = key_dim; }
  void reserve_queries(int query_heads) override {
    expected_.reserve(query_heads / heads_, dim_);
    logits_.assign(count_of<double>("query_heads * capacity", {expected_.group(), capacity_}), 0);
  }
  /// O(query heads of the group * count * head_dim).
  void importance(const Candidates& c, double* out) override {
    expected_.expect(c, [&](double f, double next) { return mean_of_next(f, next, o_.horizon); });
    const int end = c.first + c.count;
    std::fill(logits_.begin(), logits_.end(), 0.);
    std::fill_n(out, c.count, 0.);
    for (int d = 0; d < dim_; d += max_dims) {
      const int n = (std::min)(max_dims, dim_ - d);
      for_each_row(*c.rotated_keys, c.head, c.first, end, d, n, [&](int r, const float* key) {
        for (int g = 0; g < expected_.group(); ++g)
          logits(g)[r - c.first] += row_sums::dot(key, expected_.query(g) + d, n);
      });
    }
    for (int g = 0; g < expected_.group(); ++g) add_softmax(logits(g), c.count, c.queries->scale(), out);
    if (o_.times == ExpectedTimes::value) multiply_by_length(c, out);
    row_sums::round(out, c.count);
  }
  std::size_t bytes() const override { return expected_.bytes() + logits_.size() * sizeof(double); }

 private:
  double* logits(int g) { return logits_.data() + static_cast<std::ptrdiff_t>(g) * capacity_; }
  /// Adds the softmax of logits, over the group.
  void add_softmax(const double* logits, int count, double scale, double* out) const {
    double most = 0, total = 0;
    bool any = false;
    for (int i = 0; i < count; ++i) {
      if (!is_finite(logits[i])) continue;
      most = any ? (std::max)(most, logits[i]) : logits[i];
      any = true;
    }
    for (int i = 0; i < count; ++i)
      if (is_finite(logits[i])) total += std::exp(scale * (logits[i] - most));
    for (int i = 0; i < count; ++i) {
      if (is_finite(logits[i]))
        out[i] += std::exp(scale * (logits[i] - most)) / (total * expected_.group());
      else
        put_nan(out + i);
    }
  }
  void multiply_by_length(const Candidates& c, double* out) {
    double* squares = logits_.data();
    std::fill_n(squares, c.count, 0.);
    for (int d = 0, dim = c.values->dim(); d < dim; d += max_dims) {
      const int n = (std::min)(max_dims, dim - d);
      for_each_row(*c.values, c.head, c.first, c.first + c.count, d, n,
                   [&](int r, const float* value) { squares[r - c.first] += row_sums::squares(value, n); });
    }
    for (int i = 0; i < c.count; ++i) {
      out[i] *= std::sqrt(squares[i]);
      if (!is_finite(out[i])) put_nan(out + i);
    }
  }

  ExpectedOptions o_;
  int heads_ = 0, capacity_ = 0, dim_ = 0;
  ExpectedQueries expected_;
  std::vector<double> logits_;  // [group, capacity]; later the first line has the squares of values
};

}  // namespace buzz
