#pragma once

#include <Eigen/Core>

#include "buzz/score/row_scores.h"

namespace buzz {

/// How the column sums of successive calls make a row's score. accumulated: their sum (BUZZ, section 3.2; H2O). latest:
/// the last call's alone (the authors' `fast`). mean: accumulated over the number of tokens since the row's own, so
/// that an old row has no head start.
enum class MassKind { accumulated, latest, mean };

/// Score: the attention probability that a row received, summed over the queries that saw it and over the query heads
/// of its group. Query head q feeds KV head q / (query_heads / kv_heads). float32 whatever the cache's type is.
/// A probability that is not finite adds nothing.
class Mass {
 public:
  struct Options {
    MassKind mass = MassKind::accumulated;
  };
  static constexpr bool needs_mass = true;   // observe() has to be fed
  static constexpr bool needs_rows = false;  // select() does without K and V

  static void check(const Options&) {}
  Mass(const Options& options, int heads, int capacity)
      : kind_(options.mass), heads_(heads), scores_(heads, capacity), call_(heads, capacity) {}

  void append(int rows, int tokens) { scores_.clear(heads_, rows, rows + tokens); }

  /// Adds the column sums of probabilities [query_heads, queries, rows]; the queries are the last rows, and what a
  /// query gives to a later row is not read. O(query_heads * queries * rows).
  void observe(const View<const float>& probabilities) {
    const int queries = probabilities.shape(1), rows = probabilities.shape(2);
    const int group = probabilities.shape(0) / heads_;
    call_.clear(heads_, 0, rows);
    for (int q = 0; q < probabilities.shape(0); ++q) {
      float* sums = call_.head(q / group);
      for (int i = 0; i < queries; ++i) {
        const int seen = rows - queries + i + 1;
        Eigen::Map<const Eigen::ArrayXf> p(probabilities.row(q, i), seen);
        Eigen::Map<Eigen::ArrayXf>(sums, seen) += p.isFinite().select(p, 0.f);
      }
    }
    for (int h = 0; h < heads_; ++h) add(h, call_.head(h), rows);
  }

  /// Adds one call's column sums of one head, [rows]. O(rows).
  void add(int head, const float* sums, int rows) {
    Eigen::Map<const Eigen::ArrayXf> s(sums, rows);
    Eigen::Map<Eigen::ArrayXf> score(scores_.head(head), rows);
    if (kind_ == MassKind::latest)
      score = s;
    else
      score += s;
  }

  /// Writes what rows [begin, begin + count) are worth; `positions` are all rows', `next` is the next token's.
  template <class Rows>
  void worth(int head, int begin, int count, const std::int32_t* positions, int next, const Rows&, float* out) const {
    const float* score = scores_.head(head) + begin;
    for (int i = 0; i < count; ++i)
      out[i] = kind_ == MassKind::mean ? score[i] / static_cast<float>(next - positions[begin + i]) : score[i];
  }

  void compact(const Keep& keep) { scores_.compact(keep); }
  /// Sets the scores of rows [0, end) to 0, as the authors do with those that will never be read again.
  void forget(int end) { scores_.clear(heads_, 0, end); }
  Span<const float> scores(int head, int rows) const { return {scores_.head(head), rows}; }
  std::size_t bytes() const { return scores_.bytes() + call_.bytes(); }

 private:
  MassKind kind_;
  int heads_;
  RowScores scores_;  // [kv_heads, capacity]
  RowScores call_;    // [kv_heads, capacity], one call's column sums
};

}  // namespace buzz
