#pragma once

#include <algorithm>
#include <vector>

#include "buzz/chunk.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_scores.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: the attention that the last `queries` queries gave a row, then pooled over the `kernel` rows around it
/// (SnapKV, arXiv 2404.14469, section 4). Rows around are those side by side in the cache; sink and window are not
/// among them, and where there are none, average counts zeros, as the authors' code does.
class RecentAttention final : public Score {
 public:
  /// Of its options.
  explicit RecentAttention(const RecentAttentionOptions& o = {}) : o_(o) {}
  Needs needs() const override { return needs_of(o_); }
  int queries_apart() const override { return o_.queries; }
  void reserve(int kv_heads, int capacity) override {
    heads_ = kv_heads;
    next_ = 0;
    count_of<float>("queries * kv_heads * capacity", {o_.queries, kv_heads, capacity});
    ring_ = RowScores<float>(o_.queries * kv_heads, capacity);
    sums_.assign(static_cast<std::size_t>(capacity), 0);
  }
  void append(int rows, int tokens) override { ring_.clear(o_.queries * heads_, rows, rows + tokens); }
  void observe(const View<const float>& sums, bool) override {
    for (int h = 0; h < heads_; ++h) std::copy_n(sums.row(0, h), sums.shape(2), ring_.head(next_ * heads_ + h));
    next_ = (next_ + 1) % o_.queries;
  }
  void importance(const Candidates& c, double* out) override {
    float* sums = sums_.data();
    std::fill_n(sums, c.count, 0.f);
    for (int i = 0; i < o_.queries; ++i) {
      const float* query = at(i, c.head) + c.first;
      for (int r = 0; r < c.count; ++r) sums[r] += query[r];
    }
    const int reach = (std::min)(o_.kernel / 2, c.count);
    for (int i = 0; i < c.count; ++i) {
      const int first = (std::max)(0, i - reach), end = (std::min)(c.count, i + reach + 1);
      const float* around = sums + first;
      float pooled = 0;
      if (o_.pooling == Pooling::max) {
        pooled = around[heaviest(around, end - first)];
      } else {
        for (int r = 0; r < end - first; ++r) pooled += around[r];
        pooled /= static_cast<float>(o_.kernel);
      }
      out[i] = static_cast<double>(pooled);
    }
  }
  void keep(const KeptRows& kept) override {
    for (int query = 0; query < o_.queries; ++query) ring_.compact(kept, query * heads_);
  }
  void forget(int end) override { ring_.clear(o_.queries * heads_, 0, end); }
  int states() const override { return o_.queries; }
  /// Oldest first.
  RowNumbers state(int i, int head) override { return at(i, head); }
  RowNumbers changes(int head) override { return ring_.head(next_ * heads_ + head); }
  void step_back() override { next_ = (next_ + o_.queries - 1) % o_.queries; }
  std::size_t bytes() const override { return ring_.bytes() + sums_.size() * sizeof(float); }

 private:
  /// Of the query before which i others came, of those held.
  float* at(int i, int head) { return ring_.head((next_ + i) % o_.queries * heads_ + head); }

  RecentAttentionOptions o_;
  int heads_ = 0, next_ = 0;     // next_: the oldest query's place, which the next one takes
  RowScores<float> ring_{0, 0};  // [queries * kv_heads, capacity]
  std::vector<float> sums_;      // [capacity], of the candidates
};

}  // namespace buzz
