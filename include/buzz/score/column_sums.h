#pragma once

#include <algorithm>

#include "buzz/finite.h"
#include "buzz/view.h"

namespace buzz {

/// Writes what one query's probabilities, [query_heads, queries, rows] whose queries are the last rows, give to each
/// row of a KV head, over the query heads of its group: [rows]. Query head q feeds KV head q / (query_heads /
/// kv_heads). A probability that is not finite adds nothing; what the query gives to a later row is not read. O(group *
/// rows).
inline void column_sums(const View<const float>& probabilities, int kv_heads, int head, int query, float* out) {
  const int rows = probabilities.shape(2), seen = rows - probabilities.shape(1) + query + 1;
  const int group = probabilities.shape(0) / kv_heads;
  std::fill_n(out, rows, 0.f);
  for (int q = head * group; q < (head + 1) * group; ++q) add_finite(probabilities.row(q, query), seen, out);
}

}  // namespace buzz
