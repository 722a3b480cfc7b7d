#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/view.h"

namespace buzz {

/// Refuses what can be no attention probability, nor a sum of them: what is not finite, below 0 or above 2^64.
/// not_finite: that is let pass. O(count).
template <class Family = InvalidArgument>
void require_masses(const char* field, const float* values, int count, bool not_finite = false) {
  constexpr int block = 16;  // a constant trip count is vectorised at -O2 too
  // Without branches, and of int, since clang warns of bool.
  const auto bad = [=](const float& x) { return int{!is_mass(x)} & (int{!not_finite} | int{is_finite(x)}); };
  for (int begin = 0; begin < count; begin += block) {
    int any = 0;
    if (count - begin >= block)
      for (int i = 0; i < block; ++i) any |= bad(values[begin + i]);
    else
      for (int i = begin; i < count; ++i) any |= bad(values[i]);
    for (int i = begin; any != 0 && i < count; ++i)
      if (bad(values[i]) != 0) fail<Family>(field, std::to_string(values[i]), "0 to 2^64");
  }
}

/// What one query's probabilities, over the query heads of a KV head's group, give to each row. Query head q feeds KV
/// head q / (query_heads / kv_heads). A probability that is not finite adds nothing.
class ColumnSums {
 public:
  /// For `heads` KV heads and calls of up to `capacity` rows.
  ColumnSums(int heads, int capacity) : heads_(heads), sums_(static_cast<std::size_t>(capacity)) {}

  /// Of probabilities [query_heads, queries, rows], whose queries are the last rows; what the query gives to a later
  /// row is not read. The result, [rows], is valid until the next call. O(group * rows).
  const float* operator()(const View<const float>& probabilities, int head, int query) {
    const int rows = probabilities.shape(2), seen = rows - probabilities.shape(1) + query + 1;
    const int group = probabilities.shape(0) / heads_;
    std::fill_n(sums_.data(), rows, 0.f);
    for (int q = head * group; q < (head + 1) * group; ++q) add_finite(probabilities.row(q, query), seen, sums_.data());
    return sums_.data();
  }
  std::size_t bytes() const { return sums_.size() * sizeof(float); }  ///< allocated

 private:
  int heads_;
  std::vector<float> sums_;  // [capacity]
};

}  // namespace buzz
