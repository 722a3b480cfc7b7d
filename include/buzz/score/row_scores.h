#pragma once

#include <algorithm>
#include <vector>

#include "buzz/kept_rows.h"

namespace buzz {

/// One number a row, [kv_heads, capacity]: what the scores with a memory are made of. Real: double where they are sums
/// without end, which a float stops taking part in at 2^24; else float.
template <class Real>
class RowScores {
 public:
  /// All 0.
  RowScores(int heads, int capacity)
      : capacity_(capacity), values_(count_of<Real>("kv_heads * capacity", {heads, capacity})) {}

  Real* head(int h) { return values_.data() + static_cast<std::ptrdiff_t>(h) * capacity_; }  ///< [capacity]
  /// [capacity].
  const Real* head(int h) const { return values_.data() + static_cast<std::ptrdiff_t>(h) * capacity_; }

  /// Gives rows [begin, end) of every head the value 0.
  void clear(int heads, int begin, int end) {
    for (int h = 0; h < heads; ++h) std::fill(head(h) + begin, head(h) + end, Real());
  }

  /// Keeps the rows that `kept` names, of the heads from `first` on.
  void compact(const KeptRows& kept, int first = 0) {
    for (int h = 0; h < kept.heads(); ++h) buzz::compact(kept, h, View<Real>(head(first + h), 1, kept.from(), 1));
  }

  std::size_t bytes() const { return values_.size() * sizeof(Real); }  ///< allocated

 private:
  int capacity_;
  std::vector<Real> values_;
};

}  // namespace buzz
