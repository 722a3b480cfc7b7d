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
  static constexpr int code = 1;             // in saved files
  static constexpr bool remembers = true;    // has scores between calls: scores(), row()
  static constexpr bool needs_mass = true;   // observe() has to be fed
  static constexpr bool needs_rows = false;  // select() does without K and V

  static void check(const Options&) {}
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("mass", static_cast<int>(o.mass));
  }
  Mass(const Options& options, int heads, int capacity)
      : kind_(options.mass), heads_(heads), scores_(heads, capacity), sums_(static_cast<std::size_t>(capacity)) {}

  void append(int rows, int tokens) { scores_.clear(heads_, rows, rows + tokens); }

  /// The column sums of one query's probabilities over a head's group, [rows]: of probabilities [query_heads, queries,
  /// rows], whose queries are the last rows; what the query gives to a later row is not read. The result is valid until
  /// the next call. O(group * rows).
  const float* column_sums(const View<const float>& probabilities, int head, int query) {
    const int rows = probabilities.shape(2), seen = rows - probabilities.shape(1) + query + 1;
    const int group = probabilities.shape(0) / heads_;
    std::fill_n(sums_.data(), rows, 0.f);
    Eigen::Map<Eigen::ArrayXf> sums(sums_.data(), seen);
    for (int q = head * group; q < (head + 1) * group; ++q) {
      Eigen::Map<const Eigen::ArrayXf> p(probabilities.row(q, query), seen);
      sums += p.isFinite().select(p, 0.f);
    }
    return sums_.data();
  }

  /// Adds column sums of one head, [rows]; `first`: they are the first of a call. O(rows).
  void add(int head, const float* sums, int rows, bool first) {
    Eigen::Map<const Eigen::ArrayXf> s(sums, rows);
    Eigen::Map<Eigen::ArrayXf> score(scores_.head(head), rows);
    if (kind_ == MassKind::latest && first)
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
  float* row(int head) { return scores_.head(head); }
  const float* row(int head) const { return scores_.head(head); }
  std::size_t bytes() const { return scores_.bytes() + sums_.size() * sizeof(float); }

 private:
  MassKind kind_;
  int heads_;
  RowScores scores_;         // [kv_heads, capacity]
  std::vector<float> sums_;  // [capacity], one query's
};

}  // namespace buzz
