#pragma once

#include <algorithm>
#include <vector>

#include "buzz/keep.h"

namespace buzz {

/// One float32 a row, [kv_heads, capacity]: what the scores with a memory are made of.
class RowScores {
 public:
  /// All 0.
  RowScores(int heads, int capacity)
      : capacity_(capacity), values_(static_cast<std::size_t>(heads) * static_cast<std::size_t>(capacity), 0.f) {}

  float* head(int h) { return values_.data() + static_cast<std::ptrdiff_t>(h) * capacity_; }  ///< [capacity]
  /// [capacity].
  const float* head(int h) const { return values_.data() + static_cast<std::ptrdiff_t>(h) * capacity_; }

  /// Gives rows [begin, end) of every head the value 0.
  void clear(int heads, int begin, int end) {
    for (int h = 0; h < heads; ++h) std::fill(head(h) + begin, head(h) + end, 0.f);
  }

  /// Keeps the rows that `keep` names.
  void compact(const Keep& keep) {
    for (int h = 0; h < keep.heads(); ++h) buzz::compact(keep, h, View<float>(head(h), 1, keep.from(), 1));
  }

  std::size_t bytes() const { return values_.size() * sizeof(float); }  ///< allocated

 private:
  int capacity_;
  std::vector<float> values_;
};

}  // namespace buzz
