#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/view.h"

namespace buzz {

/// The sign bit is set where this is no attention sum's bits, or -0's.
constexpr std::uint32_t doubt(std::uint32_t bits) { return bits | (most_attention - bits); }
/// The same of any of values[0..N). A constant trip count is vectorised at -O2 too, and one past 16 at -O3, before
/// unrolling; of two values at once, since one waits for the other.
template <int N>
std::uint32_t doubts(const float* values) {
  constexpr std::uint32_t bits_of_2 = 0x40000000u;
  std::uint32_t any = 0;
  for (int i = 0; i < N / 2; ++i) any |= bits_of(values[i]) | bits_of(values[N / 2 + i]);
  if (any < bits_of_2) return 0;  // nearly always, at a quarter of the operations
  for (int i = 0; i < N; ++i) any |= doubt(bits_of(values[i]));
  return any;
}

/// Refuses what can be no attention probability, nor a sum of them: what is not finite, below 0 or above 2^64.
/// not_finite: that is let pass. Returns whether all are from 0 to 2^64, and none is -0. O(count).
template <class Family = InvalidArgument>
bool require_attention_sums(const char* field, const float* values, int count, bool not_finite = false) {
  constexpr int wide = 128, narrow = 64;
  std::uint32_t any = 0;
  int i = 0;
  for (; count - i >= wide; i += wide) any |= doubts<wide>(values + i);
  if (count >= narrow)
    for (; i < count; i += narrow) any |= doubts<narrow>(values + (std::min)(i, count - narrow));  // some twice
  for (; i < count; ++i) any |= doubt(bits_of(values[i]));
  if (any >> 31 == 0) return true;
  for (i = 0; i < count; ++i)
    if (!is_attention(values[i]) && !(not_finite && !is_finite(values[i])))
      fail<Family>(field, std::to_string(values[i]), "0 to 2^64");
  return false;
}

/// Writes what one query's probabilities, [query_heads, queries, rows] whose queries are the last rows, give to each
/// row of a KV head, over the query heads of its group: [rows]. Query head q feeds KV head q / (query_heads /
/// kv_heads). A probability that is not finite adds nothing; `all`: none is, nor is -0. What the query gives to a later
/// row is not read. O(group * rows).
inline void column_sums(const View<const float>& probabilities, int kv_heads, int head, int query, bool all,
                        float* out) {
  const int rows = probabilities.shape(2), seen = rows - probabilities.shape(1) + query + 1;
  const int group = probabilities.shape(0) / kv_heads;
  int q = head * group;
  if (all) std::copy_n(probabilities.row(q++, query), seen, out);
  std::fill(out + (all ? seen : 0), out + rows, 0.f);
  for (; q < (head + 1) * group; ++q) (all ? add_all : add_finite)(probabilities.row(q, query), seen, out);
}

/// each(query), oldest first, when `sums`, [1, kv_heads, rows], are its column sums. Errors, before any of that: a
/// probability below 0 or above 2^64. O(query_heads * queries * rows).
template <class Each>
void for_each_query(const View<const float>& probabilities, const View<float>& sums, Each&& each) {
  const int queries = probabilities.shape(1), rows = probabilities.shape(2), kv_heads = sums.shape(1);
  const int group = probabilities.shape(0) / kv_heads;
  bool all = true;
  const auto look = [&](int first, int end, int query) {
    for (int head = first; head < end; ++head)
      all &= require_attention_sums("probabilities", probabilities.row(head, query), rows - queries + query + 1, true);
  };
  for (int q = 0; q < queries && queries > 1; ++q) look(0, probabilities.shape(0), q);
  for (int q = 0; q < queries; ++q) {
    for (int h = 0; h < kv_heads; ++h) {
      if (queries == 1) look(h * group, (h + 1) * group, q);  // just before they are added, while the cache has them
      column_sums(probabilities, kv_heads, h, q, all, sums.row(0, h));
    }
    each(q);
  }
}

}  // namespace buzz
