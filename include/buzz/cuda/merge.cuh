#pragma once

#include "buzz/cuda/attention.cuh"

namespace buzz {
namespace cuda {

/// After Attend: merges the splits by their log-sum-exps, and adds the probabilities to the scores where the logits
/// were kept. The first tokens * group blocks of x write an output row each (none, where there was but one split), the
/// others take `threads` cached rows at a time: grid (output_blocks() + sum_blocks(), kv_heads, sequences). A query
/// whose probabilities are not finite adds to no sum.
template <class T, bool modified>
struct Merge {
  static constexpr int threads = 128;  ///< of a block
  /// A block's, of `threads` queries at a time.
  struct Shared {
    float top[threads];      ///< the largest logit
    float inverse[threads];  ///< 1 / the sum of exp(logit - top)
  };

  Step step;             ///< scores are added to where there are logits
  Tensor<T> out;         ///< [count, tokens, query_heads, value_dim], written where there are splits
  float* lse = nullptr;  ///< [count, tokens, query_heads], written likewise; null: not wanted
  Partial partial;       ///< Attend's

  /// Blocks that merge outputs, and those that add to scores; of a KV head.
  /// @{
  BUZZ_HOST_DEVICE int output_blocks() const { return partial.splits == 1 ? 0 : step.queries.count(); }
  BUZZ_HOST_DEVICE int sum_blocks() const { return partial.logits == nullptr ? 0 : step.row_blocks(threads); }
  /// @}

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const int x = block.x() - output_blocks(), head = block.y(), s = block.z();
    const int rows = step.states[s].now.rows, stride = sum_blocks() * threads;
    if (x < 0)
      block.alone([&](int t) { write(t, s, head, block.x()); });
    else
      for (int begin = x * threads; begin < rows; begin += stride) add_sums(block, shared, begin, s, head, rows);
  }

 private:
  /// The largest logit of query row i, and the sum of its exponentials, its sink's among them.
  BUZZ_DEVICE void total(int s, int head, int i, float* top, float* sum) const {
    const long long begin = step.query_at(s, head, i) * partial.splits;
    *top = lowest;
    *sum = 0;
    for (int p = 0; p < partial.splits; ++p)
      if (partial.top[begin + p] > *top) *top = partial.top[begin + p];
    for (int p = 0; p < partial.splits; ++p) *sum += weight(begin + p, *top) * partial.sum[begin + p];
    if constexpr (modified) *sum += step.sink_term(head, i, *top);
  }
  /// A split's weight; 0 without rows.
  BUZZ_DEVICE float weight(long long split, float top) const {
    return partial.top[split] == top ? 1 : ::expf(partial.top[split] - top);
  }

  BUZZ_DEVICE void write(int t, int s, int head, int i) const {
    float top, sum;
    total(s, head, i, &top, &sum);
    const long long begin = step.query_at(s, head, i) * partial.splits;
    for (int d = t; d < step.value_dim(); d += threads) {
      float x = 0;
      for (int p = 0; p < partial.splits; ++p)
        x += weight(begin + p, top) * partial.out[(begin + p) * step.value_dim() + d];
      out.row(s, step.queries.token(i), step.queries.head(head, i))[d] = from_float<T>(x / sum);
    }
    if (t == 0 && lse != nullptr) lse[step.lse_at(s, head, i)] = top + ::logf(sum);
  }

  template <class Block>
  BUZZ_DEVICE void add_sums(Block& block, Shared& shared, int begin, int s, int head, int rows) const {
    struct Row {
      double score;
      float sum;
    };
    typename Block::template Private<Row> row(block);
    double* its = step.scores + step.begin(s, head);
    block.alone([&](int t) {
      if (begin + t < rows) row[t].score = its[begin + t];
      row[t].sum = 0;
    });
    for (int first = 0; first < step.queries.count(); first += threads) {
      const int here = step.queries.count() - first < threads ? step.queries.count() - first : threads;
      block.phase([&](int t) {
        if (t >= here) return;
        float sum;
        total(s, head, first + t, shared.top + t, &sum);
        shared.inverse[t] = 1 / sum;
      });
      block.phase([&](int t) {
        if (begin + t >= rows) return;
        Row& r = row[t];
        for (int i = first; i < first + here; ++i) {
          const float inverse = shared.inverse[i - first];
          if (begin + t < step.queries.seen(i, rows) && is_finite(inverse) &&
              !(modified && begin + t < step.template first_seen<modified>(i, rows)))
            r.sum +=
                ::expf(partial.logits[step.query_at(s, head, i) * step.capacity + begin + t] - shared.top[i - first]) *
                inverse;
          if ((i + 1) % step.queries.group != 0) continue;
          r.score = step.fold(r.score, r.sum, step.queries.token(i) == 0);
          r.sum = 0;
        }
      });
    }
    block.alone([&](int t) {
      if (begin + t < rows) its[begin + t] = row[t].score;
    });
  }
};

}  // namespace cuda
}  // namespace buzz
