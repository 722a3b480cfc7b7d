#pragma once

#include <cmath>
#include <type_traits>

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/step.cuh"

namespace buzz {
namespace cuda {

/// Where a largest logit begins; no infinity, of which compilers may take every number not to be.
constexpr float lowest = -3.402823466e+38f;

/// Softmaxes are computed with powers of two: a logit in their unit, and back.
/// @{
constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;
/// @}

/// 2^x, to about 2^-22 of itself on the device; 0 below 2^-126 there.
BUZZ_DEVICE inline float exp2_of(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// What the blocks of one query row leave for each other: where its rows are split, each split's part of the output;
/// of each split the largest logit and the sum of exp(logit - largest). A split without rows: `lowest` and 0.
struct Partial {
  float* out = nullptr;     ///< [sequences, query_heads, tokens, splits, value_dim]; not used where there is one
  float* top = nullptr;     ///< [sequences, query_heads, tokens, splits]
  float* sum = nullptr;     ///< the same, no sink's among them
  float* logits = nullptr;  ///< [sequences, query_heads, tokens, capacity]; null: not wanted
  int splits = 1;           ///< parts that the cached rows are cut into
};

/// What the groups of a block's threads leave for each other: of each its softmax over its own rows.
template <int groups, int queries, int dims>
struct Parts {
  float top[groups][queries];        ///< the largest logit, times log2(e)
  float sum[groups][queries];        ///< of 2^(logit - top)
  float out[groups][queries][dims];  ///< the same times the value
};

/// A thread's softmaxes so far, of `own` queries that it has logits of; those are times log2(e).
template <int own>
struct Softmax {
  float slope[own];   ///< ALiBi's
  float top[own];     ///< the largest logit
  float other[own];   ///< room for its maximum
  float sent[own];    ///< room too
  float before[own];  ///< what the sums so far are to be multiplied by
  float sum[own];     ///< of 2^(logit - top), of the thread's own logits
  float* kept[own];   ///< where those go, by row; null: nowhere
  int from[own];      ///< the first row that the query sees
  int seen[own];      ///< the end of those; 0: there is no such query
};

/// What attention's kernels have in common: arguments, the part of the work that is a block's, and what becomes of its
/// groups' parts. Without `modified` there are no Modifiers.
template <class T, bool modified>
struct AttentionKernel {
  /// A block's part of the work.
  struct Part {
    int s;            ///< the sequence
    int head;         ///< the KV head
    int split;        ///< which of the splits it is
    int first;        ///< of its query rows
    int here;         ///< how many
    int rows;         ///< cached ones
    int begin;        ///< the first of those to attend over
    int end;          ///< their end
    int all_from;     ///< the first row that no query of the block's has in front of its window
    int all_end;      ///< the end of the rows that all of them see, up to `end`
    const T* keys;    ///< the head's first
    const T* values;  ///< the same
  };

  StepOf<T> step;        ///< read
  Tensor<const T> q;     ///< [count, tokens, query_heads, head_dim], unrotated
  Tensor<T> out;         ///< [count, tokens, query_heads, value_dim], written where there is one split
  float* lse = nullptr;  ///< [count, tokens, query_heads], written likewise; null: not wanted
  Partial partial;       ///< to write

 protected:
  /// The block's part, of `queries` query rows, in steps of `at_once` cached ones.
  template <int queries, int at_once, class Block>
  BUZZ_DEVICE Part part_of(const Block& block) const {
    const int s = block.z(), head = block.y();
    const int split = block.x() % partial.splits, first = block.x() / partial.splits * queries;
    const int rows = step.states[s].now.rows, left = step.queries.count() - first;
    const int here = left < queries ? left : queries, last = first + here - 1;
    // No row but from the first query's first to the last one's last; the splits share those rows in whole steps.
    const int lead = step.template first_seen<modified>(first, rows), visible = step.queries.seen(last, rows);
    const int share = ((visible - lead - 1) / (at_once * partial.splits) + 1) * at_once;
    const int begin = lead + split * share, end = visible - begin < share ? visible : begin + share;
    const int all_from = step.template first_seen<modified>(last, rows), seen = step.queries.seen(first, rows);
    return {s,
            head,
            split,
            first,
            here,
            rows,
            begin,
            end,
            all_from,
            seen < end ? seen : end,
            step.keys.row(s, head, 0),
            step.values.row(s, head, 0)};
  }

  /// Takes a part's rows, `at_once` at a time, from row r on: load(all, r) loads their keys, then take(all, r, more)
  /// takes them; all: each query sees each; more: it is to load the keys of the next ones, of which the same is true.
  template <int at_once, class Load, class Take>
  static BUZZ_DEVICE void for_rows(const Part& part, Load&& load, Take&& take) {
    for (int r = part.begin; r < part.end; r += at_once) {
      const bool all = r >= part.all_from && r + at_once <= part.all_end;
      if (!all) {
        load(std::false_type(), r);
        take(std::false_type(), r, false);
        continue;
      }
      load(std::true_type(), r);
      for (bool more = true; more;) {
        more = r + 2 * at_once <= part.all_end;
        take(std::true_type(), r, more);
        if (more) r += at_once;
      }
    }
  }

  /// Calls store(i, d, x, factor) for the block's query i < queries and, of a row of dims, each of thread t's elements
  /// d: x is rotated, and the logit the product times factor; both are 0 where there is no such query or element.
  template <int queries, int dims, int threads, class Store>
  BUZZ_DEVICE void for_queries(int t, const Part& part, Store&& store) const {
    for (int i = 0; i < queries; ++i) {
      const bool some = i < part.here;
      const int token = some ? step.queries.token(part.first + i) : 0;
      const T* row = q.row(part.s, token, some ? step.queries.head(part.head, part.first + i) : 0);
      const float* angles = step.angles_of(part.s, token);
      const float unit = modified ? 1 : log2_e;  // what is done to logits is done in their own
      const float factor = some ? unit * step.template sharpness<modified>(part.first + i, part.rows) : 0;
      for (int d = t; d < dims; d += threads)
        store(i, d, some && d < step.head_dim ? step.rotation.rotated(row, angles, d) : 0, factor);
    }
  }

  /// Row + more of a head's rows, of which `from` is the first; all: it is not past the end. Else its last one there.
  template <bool all>
  static BUZZ_DEVICE const T* row_at(const T* from, long long stride, int row, int more, int end) {
    if (all) return from + stride * row + stride * more;
    return from + stride * (row + more < end ? row + more : end - 1);
  }

  /// Begins a thread's softmax k, which is that of the block's query i; keeps: it may write logits down.
  template <int own>
  BUZZ_DEVICE void start(Softmax<own>& l, int k, const Part& part, int i, bool keeps) const {
    const bool some = i < part.here;
    const int row = part.first + i;
    l.top[k] = lowest;
    l.sum[k] = 0;
    l.seen[k] = some ? step.queries.seen(row, part.rows) : 0;
    l.from[k] = some ? step.template first_seen<modified>(row, part.rows) : 0;
    if constexpr (modified) l.slope[k] = some ? step.slope(part.head, row) : 0;
    l.kept[k] = nullptr;
    if (some && keeps && partial.logits != nullptr)
      l.kept[k] = partial.logits + step.query_at(part.s, part.head, row) * step.capacity;
  }

  /// Does the query see the row? all: each query that there is does.
  template <bool all, int own>
  static BUZZ_DEVICE bool sees(const Softmax<own>& l, int k, int row, const Part& part) {
    if (all) return !modified || l.seen[k] > 0;
    return row < l.seen[k] && !(modified && row < l.from[k]) && row < part.end;
  }
  /// Finishes a thread's products; other: the largest logit of them and `top`. for_logits(f) calls f(logit, k, row) for
  /// each.
  template <bool all, int own, class F>
  BUZZ_DEVICE void find_top(Softmax<own>& l, const Part& part, F&& for_logits) const {
    BUZZ_UNROLL
    for (int k = 0; k < own; ++k) l.other[k] = l.top[k];
    for_logits([&](float& logit, int k, int row) {
      if (!sees<all>(l, k, row, part)) return;
      if constexpr (modified) logit = log2_e * step.modified(logit, part.s, part.head, l.slope[k], l.seen[k] - 1, row);
      l.other[k] = ::fmaxf(l.other[k], logit);
    });
  }
  /// `other` becomes the largest of the `sharers` threads that have logits of the same queries, `sum` theirs together.
  /// @{
  template <int sharers, class Lane, class Block, class Lanes>
  static BUZZ_DEVICE void share_top(Block& block, Lanes& lane) {
    fold_lanes<1, sharers>(block, lane, &Lane::other, &Lane::sent, [](float a, float b) { return ::fmaxf(a, b); });
  }
  template <int sharers, class Lane, class Block, class Lanes>
  static BUZZ_DEVICE void share_sum(Block& block, Lanes& lane) {
    fold_lanes<1, sharers>(block, lane, &Lane::sum, &Lane::sent, [](float a, float b) { return a + b; });
  }
  /// @}
  /// Logits become weights, with `other` the largest so far; where the query does not see the row, `unseen`.
  template <bool all, int own, class F>
  BUZZ_DEVICE void weigh(Softmax<own>& l, const Part& part, float unseen, F&& for_logits) const {
    BUZZ_UNROLL
    for (int k = 0; k < own; ++k) {
      // Equal infinities: before the first row, whose sum of 0 stays.
      l.before[k] = l.top[k] == l.other[k] ? 1 : exp2_of(l.top[k] - l.other[k]);
      l.top[k] = l.other[k];
      l.sum[k] *= l.before[k];
    }
    for_logits([&](float& logit, int k, int row) {
      if (!sees<all>(l, k, row, part)) {
        logit = unseen;
        return;
      }
      if (l.kept[k] != nullptr) l.kept[k][row] = logit * ln_2;
      logit = exp2_of(logit - l.top[k]);
      l.sum[k] += logit;
    });
  }

  /// The groups' parts of the block's query i become the split's, or the output, of `dim` elements.
  template <int threads, int groups, int queries, int dims>
  BUZZ_DEVICE void finish(const Parts<groups, queries, dims>& parts, int t, const Part& part, int i, int dim) const {
    float top = lowest, sum = 0, weights[groups];
    for (int g = 0; g < groups; ++g) top = ::fmaxf(top, parts.top[g][i]);
    for (int g = 0; g < groups; ++g) {
      const float its = parts.top[g][i];
      weights[g] = its == top ? 1 : exp2_of(its - top);
      sum += weights[g] * parts.sum[g][i];
    }
    if (top != lowest) top *= ln_2;
    const int row = part.first + i, token = step.queries.token(row), query_head = step.queries.head(part.head, row);
    const long long at = step.query_at(part.s, part.head, row) * partial.splits + part.split;
    const float total = modified ? sum + step.sink_term(part.head, row, top) : sum;  // where there is one split
    for (int d = t; d < dim; d += threads) {
      float x = 0;
      for (int g = 0; g < groups; ++g) x += weights[g] * parts.out[g][i][d];
      if (partial.splits == 1)
        out.row(part.s, token, query_head)[d] = from_float<T>(x / total);
      else
        partial.out[at * dim + d] = x;
    }
    if (t != 0) return;
    partial.top[at] = top;
    partial.sum[at] = sum;
    if (lse != nullptr && partial.splits == 1) lse[step.lse_at(part.s, part.head, row)] = top + ::logf(total);
  }
};

}  // namespace cuda
}  // namespace buzz
