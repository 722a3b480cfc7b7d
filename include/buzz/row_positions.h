#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "buzz/error.h"
#include "buzz/kept_rows.h"
#include "buzz/sizes.h"
#include "buzz/view.h"

namespace buzz {

/// Which token each row of a layer is: its position in the sequence, ascending in each head.
class RowPositions {
 public:
  /// Of up to `capacity` rows of each head.
  RowPositions(int heads, int capacity)
      : heads_(heads),
        capacity_(capacity),
        positions_(count_of<std::int32_t>("kv_heads * capacity", {heads, capacity})) {}

  /// A head's, [capacity].
  /// @{
  std::int32_t* row(int head) { return positions_.data() + static_cast<std::ptrdiff_t>(head) * capacity_; }
  const std::int32_t* row(int head) const { return positions_.data() + static_cast<std::ptrdiff_t>(head) * capacity_; }
  /// @}
  /// Of the first `rows` rows of all heads: [1, kv_heads, rows].
  View<const std::int32_t> view(int rows) const { return {row(0), 1, heads_, rows, 0, capacity_}; }

  /// Positions [next, next + tokens) behind `rows` rows.
  void append(int rows, int tokens, int next) {
    for (int t = 0; t < tokens; ++t)
      for (int h = 0; h < heads_; ++h) row(h)[rows + t] = next + t;
  }
  /// The kept rows' move together.
  void compact(const KeptRows& kept) {
    for (int h = 0; h < heads_; ++h) buzz::compact(kept, h, View<std::int32_t>(row(h), 1, capacity_, 1));
  }

  /// Refuses positions [first, first + count) of which a head has evicted one; those from `next` on are still to come.
  template <class Family>
  void require_held(int rows, int next, int first, int count) const {
    for (int h = 0; h < heads_; ++h) {
      const std::int32_t* end = row(h) + rows;
      const auto at = std::lower_bound(row(h), end, first);
      const long long there = std::lower_bound(at, end, first + count) - at;
      const long long ahead = (std::max)(0, first + count - (std::max)(first, next));
      if (there + ahead < count)
        fail<Family>("pin", "positions " + std::to_string(first) + " to " + std::to_string(first + count - 1),
                     "positions that no head has evicted");
    }
  }
  /// Refuses loaded ones that do not ascend, or are not below `next`.
  void require_ascending(int rows, int next) const {
    for (int h = 0; h < heads_; ++h)
      for (int r = 0; r < rows; ++r)
        require_range<FileError>("positions", row(h)[r], r == 0 ? 0 : row(h)[r - 1] + 1LL, next - 1LL);
  }
  std::size_t bytes() const { return positions_.size() * sizeof(std::int32_t); }  ///< allocated

 private:
  int heads_, capacity_;
  std::vector<std::int32_t> positions_;  // [kv_heads, capacity]
};

}  // namespace buzz
