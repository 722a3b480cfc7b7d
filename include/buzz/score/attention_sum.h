#pragma once

#include <algorithm>
#include <limits>

#include "buzz/score/kinds.h"
#include "buzz/score/row_scores.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: the attention that a row received, summed over the queries that saw it and over the query heads of its group.
/// In double: a float stops growing at 2^24 tokens of 1.
class AttentionSum final : public Score {
 public:
  /// Of its options.
  explicit AttentionSum(const AttentionSumOptions& o = {}) : o_(o) {}
  Needs needs() const override { return needs_of(o_); }
  int queries_apart() const override {
    if (o_.attention == AttentionKind::largest || o_.attention == AttentionKind::decayed)
      return (std::numeric_limits<int>::max)();
    return o_.attention == AttentionKind::newest ? 1 : 0;
  }
  void reserve(int kv_heads, int capacity) override {
    heads_ = kv_heads;
    sums_ = RowScores<double>(kv_heads, capacity);
  }
  void append(int rows, int tokens) override { sums_.clear(heads_, rows, rows + tokens); }
  void observe(const View<const float>& sums, bool first) override {
    const int rows = sums.shape(2);
    for (int h = 0; h < heads_; ++h) add(sums.row(0, h), rows, first, sums_.head(h));
  }
  void importance(const Candidates& c, double* out) override {
    const double* sums = sums_.head(c.head) + c.first;
    if (o_.attention != AttentionKind::mean) return void(std::copy_n(sums, c.count, out));
    for (int i = 0; i < c.count; ++i) out[i] = sums[i] / c.age(i);
  }
  void keep(const KeptRows& kept) override { sums_.compact(kept); }
  void forget(int end) override { sums_.clear(heads_, 0, end); }
  int states() const override { return 1; }
  RowNumbers state(int, int head) override { return sums_.head(head); }
  const double* scores(int head) const override { return sums_.head(head); }
  std::size_t bytes() const override { return sums_.bytes(); }

 private:
  void add(const float* x, int rows, bool first, double* to) const {
    if ((o_.attention == AttentionKind::latest && first) || o_.attention == AttentionKind::newest)
      std::copy_n(x, rows, to);
    else if (o_.attention == AttentionKind::largest)
      for (int r = 0; r < rows; ++r) to[r] = (std::max)(to[r], static_cast<double>(x[r]));
    else if (o_.attention == AttentionKind::decayed)
      for (int r = 0; r < rows; ++r) to[r] = static_cast<double>(o_.decay) * to[r] + static_cast<double>(x[r]);
    else
      row_sums::add(x, rows, 1, to);
  }

  AttentionSumOptions o_;
  int heads_ = 0;
  RowScores<double> sums_{0, 0};  // [kv_heads, capacity]
};

}  // namespace buzz
