#pragma once

#include "buzz/cuda/attention.cuh"

namespace buzz {
namespace cuda {

/// AttendMma for many queries (FlashAttention-2, arXiv 2307.08691): a block takes 64 query rows of one KV head, a warp
/// sixteen of them. The cached rows pass through shared memory, each step's while the one before it is multiplied: grid
/// (ceil(tokens * group / 64), kv_heads, sequences). Rows are not split and logits not kept; all else is as there.
///
/// Fragments lie in shared memory as lanes take them. Lane 4 g + i has queries g and g + 8 of its warp. Of keys and
/// values it has what it has in AttendMma, but that keys, and elements of values, are columns of the products. That
/// leaves it the logits of its queries and keys 2 i, 2 i + 1, 8 + 2 i and 9 + 2 i, which is its part of the weights,
/// and sums of the same queries.
template <class T, int dims, bool modified>
struct AttendMany : AttentionKernel<T, modified> {
  using Base = AttentionKernel<T, modified>;  ///< what all have
  using Base::out;
  using Base::step;
  using typename Base::Part;
  static constexpr int threads = 128;         ///< of a block
  static constexpr int warps = threads / 32;  ///< each takes queries of its own
  static constexpr int queries = 16 * warps;  ///< of a block
  /// Sixteens of rows that are under way, so that a thread's registers suffice.
  static constexpr int tiles = (modified ? 128 : 256) / dims;
  static constexpr int at_once = 16 * tiles;  ///< rows that are under way
  static constexpr int packs = dims / 32;     ///< 16 bytes that a lane has of a key
  static constexpr int slabs = dims / 64;     ///< 16 bytes that it has of a value
  static_assert(sizeof(T) == 2 && (dims == 64 || dims == 128), "whole fragments that fit");
  /// Rows under way, as lanes take them.
  struct Rows {
    Bits keys[tiles][2][packs][32];    ///< of row 8 h + g of each sixteen
    Bits values[tiles][4][slabs][32];  ///< of rows 2 i, 2 i + 1, 8 + 2 i, 9 + 2 i
  };
  /// What a block shares.
  struct Shared {
    /// One after the other.
    union {
      Bits query[warps][2][2 * packs][32];  ///< rotated, in two, as fragments
      Rows rows[2];                         ///< what is multiplied, and what is on its way
    };
    float factor[queries];  ///< what products are to be multiplied by
  };
  /// What a thread holds: two queries' softmax so far, and `out`.
  struct Lane : Softmax<2> {
    Bits query[2][2 * packs];   ///< of both queries the one part, and the other
    Pair keys[tiles][2];        ///< what one product takes of each key
    float logits[tiles][2][4];  ///< of eight h, then 2^(logit - top): two of the first query, two of the second
    Bits weights[tiles];        ///< the same as T
    Bits values[4];             ///< 16 bytes of each value of a sixteen
    float out[slabs][4][2][4];  ///< the sum of 2^(logit - top) times the value, of words e, low and high
    float factor[2];            ///< what products are to be multiplied by
  };

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const Part part = this->template part_of<queries, at_once>(block);
    typename Block::template Private<Lane> lane(block);
    block.phase([&](int t) {
      this->template for_queries<queries, dims, threads>(
          t, part, [&](int i, int d, float x, float factor) { put(shared, i, d, x, factor); });
    });
    block.phase([&](int t) { start(lane[t], shared, t, part); });
    block.alone([&](int t) { copy(block, shared.rows[0], t, part, part.begin); });
    for (int r = part.begin, now = 0; r < part.end; r += at_once, now ^= 1) {
      block.arrive();  // and all have multiplied what was there before
      if (r + at_once < part.end) block.alone([&](int t) { copy(block, shared.rows[now ^ 1], t, part, r + at_once); });
      take(block, lane, shared.rows[now], part, r);
    }
    this->template share_sum<4, Lane>(block, lane);
    block.alone([&](int t) {
      BUZZ_UNROLL
      for (int k = 0; k < 2; ++k) finish(lane[t], k, t, part);
    });
  }

 private:
  BUZZ_DEVICE int key_dim() const { return modified ? step.head_dim : dims; }
  BUZZ_DEVICE int value_dim() const { return modified ? step.value_dim() : dims; }
  /// Which of the block's queries a lane's query k is.
  static BUZZ_DEVICE int query_of(int t, int k) { return t / 32 * 16 + 8 * k + group_of(t); }

  /// Leaves x, element d of query i, in two, where the lane is that takes it.
  static BUZZ_DEVICE void put(Shared& shared, int i, int d, float x, float factor) {
    BUZZ_UNROLL
    for (int part = 0; part < 2; ++part) {
      const T its = from_float<T>(x);
      Bits& bits = shared.query[i / 16][part][d / 32 * 2 + d % 8 / 4][i % 8 * 4 + d % 32 / 8];
      place(bits, d % 4 / 2 * 2 + i % 16 / 8, d % 2, its);
      x -= to_float(its);
    }
    if (d == 0) shared.factor[i] = factor;
  }

  BUZZ_DEVICE void start(Lane& l, const Shared& shared, int t, const Part& part) const {
    BUZZ_UNROLL
    for (int k = 0; k < 2; ++k) {
      Base::start(l, k, part, query_of(t, k), false);
      l.factor[k] = shared.factor[query_of(t, k)];
    }
    BUZZ_UNROLL
    for (int k = 0; k < 2; ++k) BUZZ_UNROLL
    for (int s = 0; s < 2 * packs; ++s) l.query[k][s] = shared.query[t / 32][k][s][t % 32];
    for_out([&](int p, int e, int high, int x) { l.out[p][e][high][x] = 0; });
  }
  /// Calls f(p, e, high, x) for each of a lane's sums.
  template <class F>
  static BUZZ_DEVICE void for_out(F&& f) {
    BUZZ_UNROLL
    for (int p = 0; p < slabs; ++p) BUZZ_UNROLL
    for (int e = 0; e < 4; ++e) BUZZ_UNROLL
    for (int high = 0; high < 2; ++high) BUZZ_UNROLL
    for (int x = 0; x < 4; ++x) f(p, e, high, x);
  }
  /// Calls f(logit, k, row) for each of a lane's logits of the rows from r on.
  template <class F>
  static BUZZ_DEVICE void for_logits(Lane& l, int t, int r, F&& f) {
    BUZZ_UNROLL
    for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
    for (int h = 0; h < 2; ++h) BUZZ_UNROLL
    for (int x = 0; x < 4; ++x) f(l.logits[u][h][x], x / 2, r + 16 * u + row_of(t, h, x % 2));
  }

  /// Begins to copy a warp's share of the rows from row r on. In place of a row past the end it is the last one, in
  /// place of what is past a row's elements, which the queries have zeros for, its first.
  template <class Block>
  BUZZ_DEVICE void copy(Block& block, Rows& to, int t, const Part& part, int r) const {
    BUZZ_UNROLL
    for (int m = 0; m < tiles * 2 * packs / warps; ++m) {
      const int n = m * warps + t / 32, u = n / (2 * packs), h = n / packs % 2, j = n % packs;
      const T* from =
          this->template row_at<false>(part.keys, step.keys.inner, r + 16 * u + 8 * h, group_of(t), part.end);
      const int d = 32 * j + 8 * member_of(t);
      block.copy(to.keys[u][h][j][t % 32], from + (d < key_dim() ? d : 0));
    }
    BUZZ_UNROLL
    for (int m = 0; m < tiles * 4 * slabs / warps; ++m) {
      const int n = m * warps + t / 32, u = n / (4 * slabs), k = n / slabs % 4, p = n % slabs;
      const T* from =
          this->template row_at<false>(part.values, step.values.inner, r + 16 * u, row_of(t, k / 2, k % 2), part.end);
      const int d = 64 * p + 8 * group_of(t);
      block.copy(to.values[u][k][p][t % 32], from + (d < value_dim() ? d : 0));
    }
  }

  /// Takes those rows, from row r on, into the softmaxes and the sums. Each logit is looked at, so that a thread's
  /// registers suffice.
  template <class Block, class Lanes>
  BUZZ_DEVICE void take(Block& block, Lanes& lane, Rows& rows, const Part& part, int r) const {
    multiply_keys(block, lane, rows);
    const auto logits_of = [&](int t) { return [&lane, t, r](auto&& f) { for_logits(lane[t], t, r, f); }; };
    block.alone([&](int t) {
      Lane& l = lane[t];
      for_logits(l, t, r, [&](float& logit, int k, int) { logit *= l.factor[k]; });
      this->template find_top<false>(l, part, logits_of(t));
    });
    this->template share_top<4, Lane>(block, lane);
    block.alone([&](int t) {
      Lane& l = lane[t];
      this->template weigh<false>(l, part, 0, logits_of(t));
      BUZZ_UNROLL
      for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
      for (int word = 0; word < 4; ++word) {
        const float* two = l.logits[u][word / 2] + word % 2 * 2;
        l.weights[u].words[word] = Join<T>::floats(two[0], two[1]);
      }
      for_out([&](int p, int e, int high, int x) { l.out[p][e][high][x] *= l.before[x / 2]; });
    });
    // What a query does not see has a weight of 0, by which nothing but numbers can be multiplied.
    const bool all = r >= part.all_from && r + at_once <= part.all_end;
    if (!all && block.any([&](int t) { return has_others(rows, t); })) {
      block.phase([&](int t) { add_others(lane[t], rows, t, part, r); });
      block.phase([&](int t) { keep_numbers(rows, t); });
    }
    add(block, lane, rows);
  }

  /// The products of the queries and the keys, of both parts of a query.
  template <class Block, class Lanes>
  BUZZ_DEVICE void multiply_keys(Block& block, Lanes& lane, const Rows& rows) const {
    block.alone([&](int t) { for_logits(lane[t], t, 0, [](float& logit, int, int) { logit = 0; }); });
    BUZZ_UNROLL
    for (int s = 0; s < 2 * packs; ++s) {
      block.alone([&](int t) {
        BUZZ_UNROLL
        for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
        for (int h = 0; h < 2; ++h) {
          const Bits& its = rows.keys[u][h][s / 2][t % 32];
          lane[t].keys[u][h] = Pair{{its.words[s % 2 * 2], its.words[s % 2 * 2 + 1]}};
        }
      });
      BUZZ_UNROLL
      for (int part = 0; part < 2; ++part) BUZZ_UNROLL
      for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
      for (int h = 0; h < 2; ++h)
        block.template multiply<T>([&](int t) { return lane[t].query[part][s]; },
                                   [&](int t) { return lane[t].keys[u][h]; },
                                   [&](int t) -> float(&)[4] { return lane[t].logits[u][h]; });
    }
  }

  /// Has a thread's share of the values others than numbers in it, NaN or infinities?
  static BUZZ_DEVICE bool has_others(const Rows& rows, int t) {
    bool found = false;
    for (int n = t; n < tiles * 4 * slabs * 32; n += threads) {
      float x[8];
      unpack<T>((&rows.values[0][0][0][0])[n], x);
      for (const float its : x) found |= !is_finite(its);
    }
    return found;
  }
  /// Makes those 0.
  static BUZZ_DEVICE void keep_numbers(Rows& rows, int t) {
    for (int n = t; n < tiles * 4 * slabs * 32; n += threads) {
      Bits& bits = (&rows.values[0][0][0][0])[n];
      float x[8];
      unpack<T>(bits, x);
      BUZZ_UNROLL
      for (int d = 0; d < 8; ++d)
        if (!is_finite(x[d])) bits.words[d / 2] &= d % 2 == 0 ? 0xffff0000u : 0xffffu;
    }
  }
  /// Adds those that a lane's queries see to its sums: their weights would not change them.
  BUZZ_DEVICE void add_others(Lane& l, const Rows& rows, int t, const Part& part, int r) const {
    for (int i = 0; i < at_once; ++i) {
      const Bits(&its)[slabs][32] = rows.values[i / 16][i % 16 / 8 * 2 + i % 2];
      BUZZ_UNROLL
      for (int p = 0; p < slabs; ++p) BUZZ_UNROLL
      for (int c = 0; c < 2; ++c) {
        float x[8];
        unpack<T>(its[p][4 * row_of(t, 0, c) + i % 8 / 2], x);
        BUZZ_UNROLL
        for (int d = 0; d < 8; ++d) BUZZ_UNROLL
        for (int k = 0; k < 2; ++k)
          if (!is_finite(x[d]) && Base::template sees<false>(l, k, r + i, part))
            l.out[p][d / 2][d % 2][2 * k + c] += x[d];
      }
    }
  }

  /// Adds the values by their weights.
  template <class Block, class Lanes>
  BUZZ_DEVICE void add(Block& block, Lanes& lane, const Rows& rows) const {
    BUZZ_UNROLL
    for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
    for (int p = 0; p < slabs; ++p) {
      block.alone([&](int t) {
        BUZZ_UNROLL
        for (int k = 0; k < 4; ++k) lane[t].values[k] = rows.values[u][k][p][t % 32];
      });
      BUZZ_UNROLL
      for (int e = 0; e < 4; ++e) BUZZ_UNROLL
      for (int high = 0; high < 2; ++high)
        block.template multiply<T>(
            [&](int t) { return lane[t].weights[u]; },
            [&](int t) {
              const Bits(&v)[4] = lane[t].values;
              if (high == 0) return Pair{{lows(v[0].words[e], v[1].words[e]), lows(v[2].words[e], v[3].words[e])}};
              return Pair{{highs(v[0].words[e], v[1].words[e]), highs(v[2].words[e], v[3].words[e])}};
            },
            [&](int t) -> float(&)[4] { return lane[t].out[p][e][high]; });
    }
  }

  /// A lane's sums of its query k become its part of the output.
  BUZZ_DEVICE void finish(const Lane& l, int k, int t, const Part& part) const {
    if (query_of(t, k) >= part.here) return;
    const int row = part.first + query_of(t, k);
    const float top = l.top[k] == lowest ? lowest : l.top[k] * ln_2;
    const float total = modified ? l.sum[k] + step.sink_term(part.head, row, top) : l.sum[k];
    T* to = out.row(part.s, step.queries.token(row), step.queries.head(part.head, row));
    for_out([&](int p, int e, int high, int x) {
      const int d = 64 * p + 8 * row_of(t, 0, x % 2) + 2 * e + high;
      if (x / 2 == k && d < value_dim()) to[d] = from_float<T>(l.out[p][e][high][x] / total);
    });
    if (member_of(t) == 0 && this->lse != nullptr) this->lse[step.lse_at(part.s, part.head, row)] = top + ::logf(total);
  }
};

}  // namespace cuda
}  // namespace buzz
