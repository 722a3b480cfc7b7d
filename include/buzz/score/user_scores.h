#pragma once

#include <algorithm>

#include "buzz/score/kinds.h"
#include "buzz/score/row_scores.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: what the user says, one number a row. New rows have 0 until they are given one.
class UserScores final : public Score {
 public:
  Needs needs() const override { return needs_of(UserScoresOptions()); }
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
  void keep(const KeptRows& kept) override { scores_.compact(kept); }
  int states() const override { return 1; }
  RowNumbers state(int, int head) override { return scores_.head(head); }
  const double* scores(int head) const override { return scores_.head(head); }
  std::size_t bytes() const override { return scores_.bytes(); }

 private:
  int heads_ = 0;
  RowScores<double> scores_{0, 0};  // [kv_heads, capacity]
};

}  // namespace buzz
