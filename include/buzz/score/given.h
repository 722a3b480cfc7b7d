#pragma once

#include "buzz/score/row_scores.h"

namespace buzz {

/// Score: whatever the user says, one number a row. New rows have 0 until they are given one. An eviction zeroes
/// nothing: a kept row's score moves with it, the sink's and the window's too, until all are given anew.
class Given {
 public:
  /// None.
  struct Options {};
  /// @{
  /// As in Mass.
  static constexpr int code = 2;           // in saved files
  using Value = double;                    // of scores(), target()
  static constexpr bool remembers = true;  // has scores between calls: scores(), target()
  static constexpr bool needs_mass = false;
  static constexpr bool needs_rows = false;

  static void check(const Options&) {}
  template <class Archive>
  static void archive(Archive&, const Options&) {}
  Given(const Options&, int heads, int capacity) : heads_(heads), scores_(heads, capacity) {}

  void append(int rows, int tokens) { scores_.clear(heads_, rows, rows + tokens); }

  /// Replaces the scores of all rows: [1, kv_heads, rows]. NaN is allowed and loses against every number.
  void give(const View<const float>& scores) {
    for (int h = 0; h < heads_; ++h) std::copy_n(scores.row(0, h), scores.shape(2), scores_.head(h));
  }

  template <class Rows, class Real>
  void worth(int head, int begin, int count, const std::int32_t*, int, const Rows&, Real* out) const {
    for (int i = 0; i < count; ++i) out[i] = static_cast<Real>(scores_.head(head)[begin + i]);
  }

  void compact(const Keep& keep) { scores_.compact(keep); }
  void forget(int) {}
  Span<const Value> scores(int head, int rows) const { return {scores_.head(head), rows}; }
  Value* target(int head) { return scores_.head(head); }
  void step_back() {}
  template <class Self, class Archive>
  static void archive_rows(Self& self, Archive& a, int head, int rows) {
    a.sums(self.scores_.head(head), static_cast<std::size_t>(rows));
  }
  std::size_t bytes() const { return scores_.bytes(); }
  /// @}

 private:
  int heads_;
  RowScores<Value> scores_;  // [kv_heads, capacity]
};

}  // namespace buzz
