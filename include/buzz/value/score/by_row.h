#pragma once

#include <algorithm>
#include <cmath>

#include "buzz/score/row_scores.h"
#include "buzz/score/row_sums.h"
#include "buzz/value/score.h"

namespace buzz {
namespace value {

/// Score: every row is as important as any other, so that a choice falls on the oldest: for policies that go by index.
class NoScore final : public Score {
 public:
  Needs needs() const override { return {}; }
  int code() const override { return 0; }
  void importance(const Candidates& c, double* out) override { std::fill_n(out, c.count, 0.); }
};

/// Score: the Euclidean norm of a row's value, as stored: what adds much where it is attended to. A value that is not
/// finite has a norm that is not: NaN loses, infinity wins.
class ValueNorm final : public Score {
 public:
  Needs needs() const override { return {false, false, true}; }
  int code() const override { return 4; }
  /// O(count * head_dim).
  void importance(const Candidates& c, double* out) override {
    std::fill_n(out, c.count, 0.);
    for (int d = 0, dim = c.values->dim(); d < dim; d += max_dims) {
      const int n = (std::min)(max_dims, dim - d);
      for_each_row(*c.values, c.head, c.first, c.first + c.count, d, n,
                   [&](int r, const float* value) { out[r - c.first] += row_sums::squares(value, n); });
    }
    for (int i = 0; i < c.count; ++i) out[i] = static_cast<double>(static_cast<float>(std::sqrt(out[i])));
  }
};

/// Score: what the user says, one number a row. New rows have 0 until they are given one.
class UserScores final : public Score {
 public:
  Needs needs() const override { return {}; }
  int code() const override { return 2; }
  void reserve(int kv_heads, int capacity) override {
    heads_ = kv_heads;
    scores_ = RowScores<double>(kv_heads, capacity);
  }
  void append(int rows, int tokens) override { scores_.clear(heads_, rows, rows + tokens); }
  /// Replaces the scores of all rows: [1, kv_heads, rows]. NaN loses against every number.
  void observe(const View<const float>& scores, bool) override {
    for (int h = 0; h < heads_; ++h) std::copy_n(scores.row(0, h), scores.shape(2), scores_.head(h));
  }
  void importance(const Candidates& c, double* out) override {
    std::copy_n(scores_.head(c.head) + c.first, c.count, out);
  }
  void keep(const Keep& kept) override { scores_.compact(kept); }
  int memories() const override { return 1; }
  RowNumbers memory(int, int head) override { return scores_.head(head); }
  const double* scores(int head) const override { return scores_.head(head); }
  std::size_t bytes() const override { return scores_.bytes(); }

 private:
  int heads_ = 0;
  RowScores<double> scores_{0, 0};  // [kv_heads, capacity]
};

}  // namespace value
}  // namespace buzz
