#pragma once

#include "buzz/cuda/lengths.cuh"
#include "buzz/cuda/rules.cuh"
#include "buzz/cuda/score.cuh"

namespace buzz {
namespace cuda {

/// Chooses the rows that an eviction keeps; does nothing where none is due. A block a list of a sequence: grid (1,
/// lists, sequences), one list a KV head, or one for all heads, to which a row is worth the sum of what it is worth to
/// each (buzz::Shared). O(rows) a list, O(kv_heads * rows) a shared one, and what the rule takes.
template <class Rule>
struct Select {
  static constexpr int threads = 256;  ///< of a block
  /// A block's.
  struct Shared {
    typename Rule::Shared rule;  ///< of its passes
  };

  const double* scores;           ///< [sequences, kv_heads, capacity]; null: all rows are worth the same
  const std::int32_t* positions;  ///< the same, for `mean` and `fade`
  bool mean;                      ///< a score counts by the number of tokens since the row's own
  float fade;                     ///< what a score loses with each token (buzz::Fading)
  std::int32_t* kept;             ///< [sequences, lists, capacity], to write, ascending
  double* worth;                  ///< [2, sequences, lists, capacity], room
  std::int32_t* picks;            ///< [2, sequences, lists, capacity], room
  const State* states;            ///< [sequences]
  Protect protect;                ///< sink and window
  Rule rule;                      ///< which rows between them stay
  /// Sizes of the above; lists: kv_heads, or 1 that all heads share.
  /// @{
  int kv_heads, lists, capacity, sequences;
  /// @}

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const int list = block.y(), s = block.z();
    const Lengths now = states[s].now;
    const Regions r = now.regions(protect);
    if (!rule.due(r.middle())) return;
    const long long begin = (static_cast<long long>(s) * lists + list) * capacity;
    const long long other = static_cast<long long>(sequences) * lists * capacity;
    std::int32_t *out = kept + begin, *chosen = picks + begin, *last = chosen;
    double *its = worth + begin, *next = its + other;

    block.phase([&](int t) {
      for (int i = t; i < r.middle(); i += threads) its[i] = value(s, list, r.sink + i, now.next);
    });
    rule.template pass<threads>(block, shared.rule, its, r.hive, r.fresh, chosen);
    int count = rule.once(r.hive, r.fresh);
    while (rule.again(count)) {  // over what the last pass left
      block.phase([&](int t) {
        for (int i = t; i < count; i += threads) next[i] = its[last[i]];
      });
      double* swap = its;
      its = next;
      next = swap;
      last = picks + begin + other;
      rule.template pass<threads>(block, shared.rule, its, count, 0, last);
      count = rule.once(count, 0);
      block.phase([&](int t) {
        for (int i = t; i < count; i += threads) out[i] = chosen[last[i]];
      });
      block.phase([&](int t) {
        for (int i = t; i < count; i += threads) chosen[i] = out[i];
      });
    }
    block.phase([&](int t) {
      const int end = r.sink + count + r.window;
      for (int i = t; i < end; i += threads)
        out[i] = i < r.sink ? i : i < r.sink + count ? r.sink + chosen[i - r.sink] : i - count + r.middle();
    });
  }

 private:
  BUZZ_DEVICE double value(int s, int list, int row, int next) const {
    if (scores == nullptr) return 0;
    if (lists == kv_heads) return of_head(s, list, row, next);
    double sum = 0;
    for (int h = 0; h < kv_heads; ++h) sum += of_head(s, h, row, next);
    return sum;
  }
  BUZZ_DEVICE double of_head(int s, int head, int row, int next) const {
    const long long at = (static_cast<long long>(s) * kv_heads + head) * capacity + row;
    if (mean) return scores[at] / static_cast<double>(next - positions[at]);
    return fade == 0 ? scores[at]
                     : scores[at] - static_cast<double>(fade) * static_cast<double>(next - 1 - positions[at]);
  }
};

}  // namespace cuda
}  // namespace buzz
