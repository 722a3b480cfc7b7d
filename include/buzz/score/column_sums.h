#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/view.h"

namespace buzz {

/// Refuses what can be no attention probability, nor a sum of them: what is not finite, below 0 or above 2^64.
/// not_finite: that is let pass. O(count).
template <class Family = InvalidArgument>
void require_attention_sums(const char* field, const float* values, int count, bool not_finite = false) {
  constexpr int block = 64;  // a constant trip count is vectorised at -O2 too, and one past 16 at -O3, before unrolling
  for (int begin = 0; begin < count; begin += block) {
    if (count >= block) begin = (std::min)(begin, count - block);  // some twice, which takes less than one by one
    const int end = (std::min)(begin + block, count);
    std::uint32_t any = 0;  // the sign bit: some may be bad, or are -0, or not finite
    const auto look = [&](const float& x) { any |= bits_of(x) | (most_attention - bits_of(x)); };
    if (end - begin == block)
      for (int i = 0; i < block; ++i) look(values[begin + i]);
    else
      for (int i = begin; i < end; ++i) look(values[i]);
    for (int i = begin; any >> 31 != 0 && i < end; ++i)
      if (!is_attention(values[i]) && !(not_finite && !is_finite(values[i])))
        fail<Family>(field, std::to_string(values[i]), "0 to 2^64");
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
