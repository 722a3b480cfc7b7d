#pragma once

#include <algorithm>
#include <string>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/view.h"

namespace buzz {

/// Refuses what can be no attention probability, nor a sum of them: what is not finite, below 0 or above 2^64.
/// not_finite: that is let pass. O(count).
template <class Family = InvalidArgument>
void require_attention_sums(const char* field, const float* values, int count, bool not_finite = false) {
  constexpr int block = 16;  // a constant trip count is vectorised at -O2 too
  // Without branches, and of int, since clang warns of bool.
  const auto bad = [=](const float& x) { return int{!is_attention(x)} & (int{!not_finite} | int{is_finite(x)}); };
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

/// Writes what one query's probabilities, [query_heads, queries, rows] whose queries are the last rows, give to each
/// row of a KV head, over the query heads of its group: [rows]. Query head q feeds KV head q / (query_heads /
/// kv_heads). A probability that is not finite adds nothing; what the query gives to a later row is not read. O(group *
/// rows).
inline void column_sums(const View<const float>& probabilities, int kv_heads, int head, int query, float* out) {
  const int rows = probabilities.shape(2), seen = rows - probabilities.shape(1) + query + 1;
  const int group = probabilities.shape(0) / kv_heads;
  const float* first = probabilities.row(head * group, query);
  for (int i = 0; i < seen; ++i) out[i] = 0.f + (is_finite(first[i]) ? first[i] : 0.f);  // no -0, as in any sum from 0
  std::fill(out + seen, out + rows, 0.f);
  for (int q = head * group + 1; q < (head + 1) * group; ++q) add_finite(probabilities.row(q, query), seen, out);
}

}  // namespace buzz
