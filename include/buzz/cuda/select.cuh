#pragma once

#include "buzz/cuda/step.cuh"

namespace buzz {
namespace cuda {

/// Chooses the rows that an eviction keeps; does nothing where there is none. A block a list of a sequence: grid (1,
/// lists, sequences), one list a KV head, or one for all heads, to which a row is as important as the sum of what it is
/// to each (Sharing::layer). O(rows) a list, O(kv_heads * rows) a shared one, and what the rule takes.
struct Select {
  static constexpr int threads = 512;  ///< of a block
  /// A block's.
  struct Shared {
    Rule::Shared rule;  ///< of its passes
  };

  Step step;                       ///< `kept` is written
  const double* scores = nullptr;  ///< [count, kv_heads, capacity]; null: all rows are equally important
  float fade = 0;                  ///< what a row loses with each token of its age
  double* importance = nullptr;    ///< [2, sequences, lists, capacity], room
  std::int32_t* picks = nullptr;   ///< [2, sequences, lists, capacity], room
  int sequences = 1;               ///< of the cache

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const int list = block.y(), s = block.z();
    const Lengths now = step.states[s].now;
    const Regions r = now.regions(step.protect);
    if (!step.rule.should_evict(r.middle())) return;
    const long long begin = step.begin_of_list(s, list);
    const long long other = step.begin_of_list(sequences, 0);
    std::int32_t *out = step.kept + begin, *chosen = picks + begin;
    double *its = importance + begin, *next = its + other;

    block.phase([&](int t) {
      for (int i = t; i < r.middle(); i += threads) its[i] = value(s, list, r.sink + i, now.next);
    });
    int hive = r.hive, unfiltered = r.unfiltered, count = 0;
    for (bool first = true;; first = false) {
      std::int32_t* const picked = first ? chosen : chosen + other;
      step.rule.pass<threads>(block, shared.rule, its, hive, unfiltered, picked);
      count = step.rule.once(hive, unfiltered);
      if (!first) {
        block.phase([&](int t) {
          for (int i = t; i < count; i += threads) out[i] = chosen[picked[i]];
        });
        block.phase([&](int t) {
          for (int i = t; i < count; i += threads) chosen[i] = out[i];
        });
      }
      if (!step.rule.again(count)) break;
      block.phase([&](int t) {  // the next pass is over what this one left
        for (int i = t; i < count; i += threads) next[i] = its[picked[i]];
      });
      double* swap = its;
      its = next;
      next = swap;
      hive = count;
      unfiltered = 0;
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
    if (step.lists == step.kv_heads) return of_head(s, list, row, next);
    double sum = 0;
    for (int h = 0; h < step.kv_heads; ++h) sum += of_head(s, h, row, next);
    return sum;
  }
  BUZZ_DEVICE double of_head(int s, int head, int row, int next) const {
    const long long at = step.begin(s, head) + row;
    double x = scores[at];
    if (step.fold.kind == AttentionKind::mean) x /= static_cast<double>(next - step.positions[at]);
    if (fade != 0) x -= static_cast<double>(fade) * static_cast<double>(next - 1 - step.positions[at]);
    return x;
  }
};

}  // namespace cuda
}  // namespace buzz
