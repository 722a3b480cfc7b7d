#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "buzz/eigen.h"
#include "buzz/score/column_sums.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_scores.h"
#include "buzz/score/row_sums.h"

namespace buzz {

/// Score: the attention probability that a row received, summed over the queries that saw it and over the query heads
/// of its group (ColumnSums). double, whatever the cache's type is: a float stops growing at 2^24 tokens of 1, and
/// sooner of less.
class Mass {
 public:
  using Options = MassOptions;               ///< how attention is added up
  using Value = double;                      ///< of a row: scores(), target()
  static constexpr int code = 1;             ///< in saved files
  static constexpr bool remembers = true;    ///< has scores between calls: scores(), target()
  static constexpr bool needs_mass = true;   ///< observe() has to be fed
  static constexpr bool needs_rows = false;  ///< select() does without K and V

  /// Errors: an option out of its range.
  static void check(const Options& o) { buzz::check(o); }
  /// Writes or checks the options of a saved cache.
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("mass", static_cast<int>(o.mass));
    if (o.mass == MassKind::decayed) a.same("decay", o.decay);
  }
  /// The newest queries of a call whose column sums it has to see apart.
  static int queries_apart(const Options& o) {
    if (o.mass == MassKind::largest || o.mass == MassKind::decayed) return (std::numeric_limits<int>::max)();
    return o.mass == MassKind::newest ? 1 : 0;
  }
  /// capacity: most rows of a head.
  Mass(const Options& options, int heads, int capacity)
      : kind_(options.mass),
        decay_(options.decay),
        heads_(heads),
        scores_(heads, capacity),
        column_sums_(heads, capacity) {}

  /// Rows [rows, rows + tokens) are new.
  void append(int rows, int tokens) { scores_.clear(heads_, rows, rows + tokens); }

  /// One query's column sums for a head, [rows]; see ColumnSums.
  const float* column_sums(const View<const float>& probabilities, int head, int query) {
    return column_sums_(probabilities, head, query);
  }

  /// Adds column sums of one head, [rows], heads in order; `first`: they are the first of a call. O(rows).
  void add(int head, const float* sums, int rows, bool first) {
    double* score = scores_.head(head);
    if ((kind_ == MassKind::latest && first) || kind_ == MassKind::newest)
      std::copy_n(sums, rows, score);
    else if (kind_ == MassKind::largest)
      for (int r = 0; r < rows; ++r) score[r] = (std::max)(score[r], static_cast<double>(sums[r]));
    else if (kind_ == MassKind::decayed)
      for (int r = 0; r < rows; ++r) score[r] = static_cast<double>(decay_) * score[r] + static_cast<double>(sums[r]);
    else
      row_sums::add(sums, rows, 1, score);
  }

  /// Writes what rows [begin, begin + count) of a head, the middle, are worth; `positions` are all rows', `next` is the
  /// next token's. Heads are asked in order.
  template <class Rows, class Real>
  void worth(int head, int begin, int count, const std::int32_t* positions, int next, const Rows&, Real* out) const {
    const double* score = scores_.head(head) + begin;
    for (int i = 0; i < count; ++i)
      out[i] = static_cast<Real>(kind_ == MassKind::mean ? score[i] / static_cast<double>(next - positions[begin + i])
                                                         : score[i]);
  }

  void compact(const Keep& keep) { scores_.compact(keep); }  ///< keeps the rows that `keep` names
  /// Sets the scores of rows [0, end) to 0, as the authors do with those that will never be read again.
  void forget(int end) { scores_.clear(heads_, 0, end); }
  /// To show, [rows]; empty: has none.
  Span<const Value> scores(int head, int rows) const { return {scores_.head(head), rows}; }
  /// What the next add() of a head changes, [capacity]: kept before it where there may be a rollback.
  Value* target(int head) { return scores_.head(head); }
  /// Takes the last add() of every head back, once target() is what it was.
  void step_back() {}
  /// Writes or reads the state of a head's rows. Errors: one that no sum of probabilities is.
  template <class Self, class Archive>
  static void archive_rows(Self& self, Archive& a, int head, int rows) {
    a.sums(self.scores_.head(head), static_cast<std::size_t>(rows));
    for (int r = 0; !std::is_const<Self>::value && r < rows; ++r) {
      const double score = self.scores_.head(head)[r];
      if (!is_finite(score) || score < 0) fail<FileError>("scores", std::to_string(score), "finite and >= 0");
    }
  }
  std::size_t bytes() const { return scores_.bytes() + column_sums_.bytes(); }  ///< allocated

 private:
  MassKind kind_;
  float decay_;
  int heads_;
  RowScores<Value> scores_;  // [kv_heads, capacity]
  ColumnSums column_sums_;
};

}  // namespace buzz
