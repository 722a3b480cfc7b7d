#pragma once

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/step.cuh"

namespace buzz {
namespace cuda {

/// Adds given attention probabilities to the scores. A thread a row: grid (blocks(), kv_heads, sequences). What is not
/// finite, below 0 or above 2^64 adds nothing, nor does what a query gives to a row that it does not see. O(tokens *
/// query_heads * rows).
struct ObserveGiven {
  static constexpr int threads = 128;  ///< of a block
  /// None.
  struct Shared {};

  Step step;                          ///< scores are added to
  Tensor<const float> probabilities;  ///< [count, query_heads, tokens, rows]

  BUZZ_HOST_DEVICE int blocks() const { return step.row_blocks(threads); }  ///< a KV head

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared&) const {
    const int head = block.y(), s = block.z(), rows = step.states[s].now.rows;
    block.alone([&](int t) {
      for (int row = block.x() * threads + t; row < rows; row += blocks() * threads) add(row, s, head, rows);
    });
  }

 private:
  BUZZ_DEVICE void add(int row, int s, int head, int rows) const {
    double& score = step.scores[step.begin(s, head) + row];
    const Queries& queries = step.queries;
    for (int token = 0; token < queries.tokens; ++token) {
      const float* p = probabilities.row(s, head * queries.group, token) + row;
      const int given = row < queries.seen(token * queries.group, rows) ? queries.group : 0;
      float sum = 0;
      for (int i = 0; i < given; ++i, p += probabilities.outer)
        if (is_attention(*p)) sum += *p;
      score = step.fold(score, sum, token == 0);
    }
  }
};

/// The same where a kernel has attended and gives each query's log-sum-exp of its logits, its head's sink among them,
/// -inf or NaN: gives nothing. The probabilities are made again and held nowhere. Sixteen lanes a row, which stays in
/// registers while the queries pass: grid (blocks(), kv_heads, sequences). O(tokens * query_heads * rows * head_dim).
template <class T, int packs, bool modified>
struct Observe {
  static constexpr int threads = 256;                   ///< of a block
  static constexpr int lanes = 16;                      ///< threads that read a row
  static constexpr int groups = threads / lanes;        ///< of lanes
  static constexpr int unroll = 2;                      ///< rows of a group
  static constexpr int rows_at_once = groups * unroll;  ///< rows of a block
  static constexpr int values = packs * Pack<T>::size;  ///< most of a lane, of a row
  static constexpr int queries = 8;                     ///< whose logits are made together
  /// A block's.
  struct Shared {
    float query[queries][lanes * values];  ///< rotated and scaled
  };
  /// What a thread holds.
  struct Lane {
    Pack<T> keys[unroll][packs];     ///< its part of the rows
    double score[unroll];            ///< of the rows
    float sum[unroll];               ///< what a token's group has given to them
    float logits[unroll * queries];  ///< of the rows
  };

  StepOf<T> step;              ///< scores are added to; `scale` as lse has it
  Tensor<const T> q;           ///< [count, tokens, query_heads, head_dim], unrotated
  const float* lse = nullptr;  ///< [count, tokens, query_heads]

  BUZZ_HOST_DEVICE int blocks() const { return step.row_blocks(rows_at_once); }  ///< a KV head

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const int rows = step.states[block.z()].now.rows;
    for (int x = block.x(); x * rows_at_once < rows; x += blocks())
      take(block, shared, x * rows_at_once, block.z(), block.y(), rows);
  }

 private:
  /// Adds to the scores of rows_at_once rows from `begin` on.
  template <class Block>
  BUZZ_DEVICE void take(Block& block, Shared& shared, int begin, int s, int head, int rows) const {
    typename Block::template Private<Lane> lane(block);
    block.alone([&](int t) {
      Lane& l = lane[t];
      for (int u = 0; u < unroll; ++u) {
        const int row = begin + u * groups + t / lanes;
        l.sum[u] = 0;
        l.score[u] = row < rows ? step.scores[step.begin(s, head) + row] : 0;
        for (int p = 0; p < packs; ++p)
          if (row < rows && element(t % lanes, p) < step.head_dim)
            l.keys[u][p] = *reinterpret_cast<const Pack<T>*>(step.keys.row(s, head, row) + element(t % lanes, p));
      }
    });
    for (int first = 0; first < step.queries.count(); first += queries) {
      const int here = step.queries.count() - first < queries ? step.queries.count() - first : queries;
      block.phase([&](int t) { load(shared, t, s, head, first, here, rows); });
      block.phase([&](int t) { dots(lane[t], shared, t % lanes, begin + t / lanes, rows); });
      block.template add_lanes<lanes>(lane, &Lane::logits);
      block.alone([&](int t) { add(lane[t], s, head, first, here, begin + t / lanes, rows); });
    }
    block.alone([&](int t) {
      for (int u = 0; u < unroll; ++u) {
        const int row = begin + u * groups + t / lanes;
        if (t % lanes == 0 && row < rows) step.scores[step.begin(s, head) + row] = lane[t].score[u];
      }
    });
  }

  /// The first element of a lane's pack p.
  static BUZZ_DEVICE int element(int lane, int p) { return (p * lanes + lane) * Pack<T>::size; }

  BUZZ_DEVICE void load(Shared& shared, int t, int s, int head, int first, int here, int rows) const {
    for (int i = 0; i < here; ++i) {
      const int token = step.queries.token(first + i);
      const T* row = q.row(s, token, step.queries.head(head, first + i));
      const float* angles = step.angles_of(s, token);
      const float sharpness = step.template sharpness<modified>(first + i, rows);
      for (int d = t; d < step.head_dim; d += threads)
        shared.query[i][d] = sharpness * step.rotation.rotated(row, angles, d);
    }
  }

  BUZZ_DEVICE void dots(Lane& l, const Shared& shared, int lane, int row, int rows) const {
    BUZZ_UNROLL
    for (int i = 0; i < queries; ++i) BUZZ_UNROLL
    for (int u = 0; u < unroll; ++u) {
      float& logit = l.logits[u * queries + i];
      logit = 0;
      if (row + u * groups >= rows) continue;
      BUZZ_UNROLL
      for (int p = 0; p < packs; ++p) {
        if (element(lane, p) >= step.head_dim) continue;
        BUZZ_UNROLL
        for (int e = 0; e < Pack<T>::size; ++e)
          logit += shared.query[i][element(lane, p) + e] * to_float(l.keys[u][p].values[e]);
      }
    }
  }

  BUZZ_DEVICE void add(Lane& l, int s, int head, int first, int here, int row, int rows) const {
    BUZZ_UNROLL
    for (int i = 0; i < queries; ++i) {
      if (i >= here) continue;
      const int token = step.queries.token(first + i);
      const float norm = lse[step.lse_at(s, head, first + i)];
      BUZZ_UNROLL
      for (int u = 0; u < unroll; ++u) {
        const int its = row + u * groups, seen = step.queries.seen(first + i, rows);
        float logit = l.logits[u * queries + i];
        if constexpr (modified)
          if (its < seen) logit = step.modified(logit, s, head, step.slope(head, first + i), seen - 1, its);
        const float p = ::expf(logit - norm);
        if (its < seen && !(modified && its < step.template first_seen<modified>(first + i, rows)) && is_finite(norm) &&
            is_attention(p))
          l.sum[u] += p;
        if ((first + i + 1) % step.queries.group != 0) continue;
        l.score[u] = step.fold(l.score[u], l.sum[u], token == 0);
        l.sum[u] = 0;
      }
    }
  }
};

}  // namespace cuda
}  // namespace buzz
