#pragma once

#include <cmath>

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/step.cuh"

namespace buzz {
namespace cuda {

/// Where a largest logit begins; no infinity, of which compilers may take every number not to be.
constexpr float lowest = -3.402823466e+38f;

/// What the blocks of one query row leave for each other: where its rows are split, each split's part of the output;
/// of each split the largest logit and the sum of exp(logit - largest). A split without rows: `lowest` and 0.
struct Partial {
  float* out = nullptr;     ///< [sequences, query_heads, tokens, splits, value_dim]; not used where there is one
  float* top = nullptr;     ///< [sequences, query_heads, tokens, splits]
  float* sum = nullptr;     ///< the same, no sink's among them
  float* logits = nullptr;  ///< [sequences, query_heads, tokens, capacity]; null: not wanted
  int splits = 1;           ///< parts that the cached rows are cut into
};

/// Softmax attention of a call's queries over a part of the cached rows, in one pass (Milakov and Gimelshein, arXiv
/// 1805.02867), split over rows as in Flash-Decoding. A block takes `queries` query rows of one KV head, so that they
/// share the loads: grid (splits * ceil(tokens * group / queries), kv_heads, sequences). Sixteen lanes read a row,
/// `packs` packs of 16 bytes each. Rows past the end are never read, nor is a row that a query does not see multiplied
/// by 0: there could be a NaN in it. Without `modified` there are no Modifiers, and values are of the keys' size,
/// which is not looked at. O(tokens * query_heads * rows * head_dim).
template <class T, int packs, int queries, bool modified>
struct Attend {
  static constexpr int threads = 128;                   ///< of a block
  static constexpr int lanes = 16;                      ///< threads that read a row
  static constexpr int groups = threads / lanes;        ///< of lanes
  static constexpr int unroll = 4;                      ///< rows that a group has under way
  static constexpr int at_once = groups * unroll;       ///< rows that the block has under way
  static constexpr int values = packs * Pack<T>::size;  ///< most of a lane
  static constexpr int dims = lanes * values;           ///< most of a row
  /// What the block's groups of lanes leave for each other.
  struct Shared {
    float top[groups][queries];        ///< the largest logit
    float sum[groups][queries];        ///< of exp(logit - top)
    float out[groups][queries][dims];  ///< all lanes' parts
  };
  /// What a thread holds; its group's softmax so far is `top`, `sum` and `out`, which is its lane's part.
  struct Lane {
    float query[queries][values];    ///< rotated and scaled
    float out[queries][values];      ///< the sum of exp(logit - top) times the value
    float top[queries];              ///< the largest logit
    float sum[queries];              ///< of exp(logit - top)
    float logits[unroll * queries];  ///< of the rows under way, then their exp(logit - top)
  };

  StepOf<T> step;        ///< read
  Tensor<const T> q;     ///< [count, tokens, query_heads, head_dim], unrotated
  Tensor<T> out;         ///< [count, tokens, query_heads, value_dim], written where there is one split
  float* lse = nullptr;  ///< [count, tokens, query_heads], written likewise; null: not wanted
  Partial partial;       ///< to write

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const int split = block.x() % partial.splits, first = block.x() / partial.splits * queries;
    const int head = block.y(), s = block.z(), rows = step.states[s].now.rows;
    const int here = step.queries.count() - first < queries ? step.queries.count() - first : queries;
    // No row but from the first query's first to the last one's last; the splits share those rows in whole steps.
    const int lead = step.template first_seen<modified>(first, rows);
    const int visible = step.queries.seen(first + here - 1, rows);
    const int part = ((visible - lead - 1) / (at_once * partial.splits) + 1) * at_once;
    const int begin = lead + split * part, end = visible - begin < part ? visible : begin + part;

    typename Block::template Private<Lane> lane(block);
    block.alone([&](int t) { start(lane[t], t % lanes, s, head, first, here, rows); });
    for (int r = begin; r < end; r += at_once) {
      block.alone([&](int t) { dots(lane[t], t % lanes, s, head, r + t / lanes, end); });
      block.template add_lanes<lanes>(lane, &Lane::logits);
      block.alone([&](int t) { add(lane[t], t % lanes, s, head, first, here, rows, r + t / lanes, end); });
    }
    block.phase([&](int t) {
      const Lane& l = lane[t];
      const int g = t / lanes;
      BUZZ_UNROLL
      for (int i = 0; i < queries; ++i) {
        if (t % lanes == 0) shared.top[g][i] = l.top[i], shared.sum[g][i] = l.sum[i];
        BUZZ_UNROLL
        for (int j = 0; j < values; ++j) shared.out[g][i][element(t % lanes, j)] = l.out[i][j];
      }
    });
    block.alone([&](int t) {
      for (int i = 0; i < here; ++i) finish(shared, t, s, head, first + i, i, split);
    });
  }

 private:
  BUZZ_DEVICE int value_dim() const { return modified ? step.value_dim() : step.head_dim; }
  /// A lane's value j is this element of a row.
  static BUZZ_DEVICE int element(int lane, int j) {
    return (j / Pack<T>::size * lanes + lane) * Pack<T>::size + j % Pack<T>::size;
  }

  BUZZ_DEVICE void start(Lane& l, int lane, int s, int head, int first, int here, int rows) const {
    BUZZ_UNROLL
    for (int i = 0; i < queries; ++i) {
      l.top[i] = lowest;
      l.sum[i] = 0;
      const bool some = i < here;
      const int token = some ? step.queries.token(first + i) : 0;
      const T* row = q.row(s, token, some ? step.queries.head(head, first + i) : 0);
      const float* angles = step.angles_of(s, token);
      const float sharpness = some ? step.template sharpness<modified>(first + i, rows) : 0;
      BUZZ_UNROLL
      for (int j = 0; j < values; ++j) {
        const int d = element(lane, j);
        l.query[i][j] = some && d < step.head_dim ? sharpness * step.rotation.rotated(row, angles, d) : 0;
        l.out[i][j] = 0;
      }
    }
  }

  /// The lane's packs of rows r, r + groups, ... below end: all loads are under way before the first is used.
  template <bool of_values>
  BUZZ_DEVICE void load(int lane, int s, int head, int r, int end, Pack<T> (&to)[unroll][packs]) const {
    BUZZ_UNROLL
    for (int u = 0; u < unroll; ++u) {
      BUZZ_UNROLL
      for (int p = 0; p < packs; ++p) {
        const int d = element(lane, p * Pack<T>::size);
        if (r + u * groups < end && d < (of_values ? value_dim() : step.head_dim))
          to[u][p] =
              *reinterpret_cast<const Pack<T>*>((of_values ? step.values : step.keys).row(s, head, r + u * groups) + d);
      }
    }
  }

  /// The lane's part of those rows' logits.
  BUZZ_DEVICE void dots(Lane& l, int lane, int s, int head, int r, int end) const {
    Pack<T> rows[unroll][packs];
    load<false>(lane, s, head, r, end, rows);
    BUZZ_UNROLL
    for (int u = 0; u < unroll; ++u) {
      BUZZ_UNROLL
      for (int i = 0; i < queries; ++i) l.logits[u * queries + i] = 0;
      BUZZ_UNROLL
      for (int p = 0; p < packs; ++p) {
        if (r + u * groups >= end || element(lane, p * Pack<T>::size) >= step.head_dim) continue;
        BUZZ_UNROLL
        for (int e = 0; e < Pack<T>::size; ++e) {
          const float key = to_float(rows[u][p].values[e]);
          BUZZ_UNROLL
          for (int i = 0; i < queries; ++i) l.logits[u * queries + i] += l.query[i][p * Pack<T>::size + e] * key;
        }
      }
    }
  }

  /// Takes those rows into the softmax and the weighted sum of the values.
  BUZZ_DEVICE void add(Lane& l, int lane, int s, int head, int first, int here, int rows, int r, int end) const {
    Pack<T> held[unroll][packs];
    load<true>(lane, s, head, r, end, held);
    BUZZ_UNROLL
    for (int i = 0; i < queries; ++i) {
      const int seen = i < here ? step.queries.seen(first + i, rows) : 0;
      const int from = step.template first_seen<modified>(first + i, rows);
      float top = l.top[i];
      BUZZ_UNROLL
      for (int u = 0; u < unroll; ++u) {
        const int row = r + u * groups;
        if (row >= end || row >= seen || (modified && row < from)) continue;
        float& logit = l.logits[u * queries + i];
        if constexpr (modified) logit = step.modified(logit, s, head, first + i, seen - 1, row);
        if (logit > top) top = logit;
        if (partial.logits != nullptr && lane == (u * queries + i) % lanes) logits_of(s, head, first + i)[row] = logit;
      }
      // Equal infinities: before the first row, whose sum of 0 stays.
      const float before = l.top[i] == top ? 1 : ::expf(l.top[i] - top);
      l.top[i] = top;
      l.sum[i] *= before;
      BUZZ_UNROLL
      for (int j = 0; j < values; ++j) l.out[i][j] *= before;
      BUZZ_UNROLL
      for (int u = 0; u < unroll; ++u) {
        const int row = r + u * groups;
        if (row >= end || row >= seen || (modified && row < from)) continue;
        float& p = l.logits[u * queries + i];
        p = ::expf(p - top);
        l.sum[i] += p;
      }
    }
    BUZZ_UNROLL
    for (int u = 0; u < unroll; ++u) {
      const int row = r + u * groups;
      BUZZ_UNROLL
      for (int p = 0; p < packs; ++p) {
        if (row >= end || element(lane, p * Pack<T>::size) >= value_dim()) continue;
        BUZZ_UNROLL
        for (int i = 0; i < queries; ++i) {
          if (i >= here || row >= step.queries.seen(first + i, rows)) continue;
          if (modified && row < step.template first_seen<modified>(first + i, rows)) continue;
          BUZZ_UNROLL
          for (int e = 0; e < Pack<T>::size; ++e)
            l.out[i][p * Pack<T>::size + e] += l.logits[u * queries + i] * to_float(held[u][p].values[e]);
        }
      }
    }
  }

  /// The groups' parts of query row i become the split's, or the output.
  BUZZ_DEVICE void finish(const Shared& shared, int t, int s, int head, int i, int slot, int split) const {
    float top = lowest, sum = 0, weights[groups];
    for (int g = 0; g < groups; ++g)
      if (shared.top[g][slot] > top) top = shared.top[g][slot];
    for (int g = 0; g < groups; ++g) {
      const float its = shared.top[g][slot];
      weights[g] = its == top ? 1 : ::expf(its - top);
      sum += weights[g] * shared.sum[g][slot];
    }
    const int token = step.queries.token(i), query_head = step.queries.head(head, i);
    const long long at = step.query_at(s, head, i) * partial.splits + split;
    const float total = modified ? sum + step.sink_term(head, i, top) : sum;  // where there is one split
    for (int d = t; d < value_dim(); d += threads) {
      float x = 0;
      for (int g = 0; g < groups; ++g) x += weights[g] * shared.out[g][slot][d];
      if (partial.splits == 1)
        out.row(s, token, query_head)[d] = from_float<T>(x / total);
      else
        partial.out[at * value_dim() + d] = x;
    }
    if (t != 0) return;
    partial.top[at] = top;
    partial.sum[at] = sum;
    if (lse != nullptr && partial.splits == 1) lse[step.lse_at(s, head, i)] = top + ::logf(total);
  }

  BUZZ_DEVICE float* logits_of(int s, int head, int i) const {
    return partial.logits + step.query_at(s, head, i) * step.capacity;
  }
};

}  // namespace cuda
}  // namespace buzz
