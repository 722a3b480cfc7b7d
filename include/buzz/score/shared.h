#pragma once

#include <algorithm>
#include <vector>

#include "buzz/keep.h"

namespace buzz {

/// Score: a row is worth the sum of what it is worth to each KV head, so that every head keeps the same rows: one list
/// for engines whose heads share their cells. A row that is NaN to one head is NaN to all.
template <class Score>
class Shared : public Score {
  static_assert(Score::code >= 0, "sharing twice is sharing once");

 public:
  static constexpr int code = -1 - Score::code;  ///< in saved files
  /// capacity: most rows.
  Shared(const typename Score::Options& options, int heads, int capacity)
      : Score(options, heads, capacity),
        heads_(heads),
        sums_(static_cast<std::size_t>(capacity)),
        worth_(static_cast<std::size_t>(capacity)) {}

  /// Heads are asked in order; the first makes the sums. O(kv_heads) times what Score takes for one.
  template <class Rows, class Real>
  void worth(int head, int begin, int count, const std::int32_t* positions, int next, const Rows& rows, Real* out) {
    if (head == 0) {
      std::fill_n(sums_.data(), count, 0.);
      for (int h = 0; h < heads_; ++h) {
        Score::worth(h, begin, count, positions, next, rows, worth_.data());
        for (int i = 0; i < count; ++i) sums_[static_cast<std::size_t>(i)] += worth_[static_cast<std::size_t>(i)];
      }
    }
    std::copy_n(sums_.data(), count, out);
  }
  std::size_t bytes() const { return Score::bytes() + (sums_.size() + worth_.size()) * sizeof(double); }  ///< allocated

 private:
  int heads_;
  std::vector<double> sums_, worth_;  // [capacity], of the middle rows
};

}  // namespace buzz
