#pragma once

#include "buzz/cuda/attention.cuh"

namespace buzz {
namespace cuda {

/// Attend for half and bfloat16, by tensor cores: a warp multiplies eight queries by sixteen keys, and sixteen values
/// by the queries' weights, so that the missing queries of a small group cost zeros and no more. All else is as there,
/// the grid too, but that a weight, once the sum has it, becomes a T. A query becomes two that add up to it, its
/// nearest T and that of what is left, side by side in a product; so it is rounded to 22 bits of half, 16 of bfloat16.
/// Without `modified` keys and values have `dims` elements.
///
/// A sum does not ask in which order its terms are. So a lane's fragments (mma.cuh) are the 16 bytes of a row that it
/// loads, and nothing is exchanged. Lane 4 g + i has elements 32 j + 8 i, .. + 7 of keys g and 8 + g, whose words 2 e
/// and 2 e + 1 are its part of product 2 j + e. That leaves it the logits of query g and keys 2 i, 2 i + 1, 8 + 2 i and
/// 9 + 2 i, as the product of the values wants their weights. Of those values it has elements 64 p + 8 g, .. + 7; they
/// are rows of that product: words e of two values make a word of one row, and of the next. Its sums are of queries
/// 2 i and 2 i + 1.
template <class T, int dims, int queries, bool modified>
struct AttendMma : AttentionKernel<T, modified> {
  using Base = AttentionKernel<T, modified>;  ///< what all have
  using Base::step;
  using typename Base::Part;
  static constexpr int threads = 128;                        ///< of a block
  static constexpr int warps = threads / 32;                 ///< each takes rows of its own
  static constexpr int tiles = dims < 128 ? 128 / dims : 1;  ///< sixteens of rows that a warp has under way
  static constexpr int at_once = warps * tiles * 16;         ///< rows that the block has under way
  static constexpr int packs = dims / 32;                    ///< 16 bytes that a lane has of a key
  static constexpr int slabs = dims / 64;                    ///< 16 bytes that it has of a value
  static constexpr int eights = queries / 8;                 ///< of queries
  static_assert(sizeof(T) == 2 && dims % 64 == 0 && queries % 8 == 0, "whole fragments");
  /// What a block shares.
  struct Shared {
    /// One after the other.
    union {
      Bits query[eights][2 * packs][32];  ///< rotated, in two, as fragments
      Parts<warps, queries, dims> parts;  ///< at the end
    };
    float factor[queries];  ///< what products are to be multiplied by
  };
  /// What a thread holds; its warp's softmax so far is those of its queries, and `out`.
  struct Lane : Softmax<eights> {
    Bits keys[tiles][2][packs];         ///< of the rows under way
    Bits rows[tiles][4][slabs];         ///< their values
    Bits query;                         ///< of one product
    float logits[tiles][eights][2][4];  ///< of them, in two, then 2^(logit - top) as the first
    Pair weights[tiles][eights];        ///< the same as T; 0: the query does not see the row
    float out[eights][slabs][4][4];     ///< the sum of 2^(logit - top) times the value
    float fresh[4];                     ///< what one token's queries add to it
    float factor[eights];               ///< what products of those queries are to be multiplied by
    float scale[2 * eights];            ///< `before` of the queries that `out` is of
    int token[2 * eights];              ///< the end of the rows that those see
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
    block.alone([&](int t) { start(lane[t], shared, t, part); });
    this->template for_rows<at_once>(
        part,
        [&](auto all, int r) { block.alone([&](int t) { load_keys<decltype(all)::value>(lane[t], t, part, r); }); },
        [&](auto all, int r, bool more) { take<decltype(all)::value>(block, lane, shared, part, r, more); });
    this->template share_sum<4, Lane>(block, lane);
    block.phase([&](int) {});  // all have read the queries
    block.phase([&](int t) { leave(lane[t], shared.parts, t); });
    block.alone([&](int t) {
      for (int i = 0; i < part.here; ++i) this->template finish<threads>(shared.parts, t, part, i, value_dim());
    });
  }

 private:
  BUZZ_DEVICE int key_dim() const { return modified ? step.head_dim : dims; }
  BUZZ_DEVICE int value_dim() const { return modified ? step.value_dim() : dims; }
  /// The first row, beside those under way, of a warp's sixteens.
  static BUZZ_DEVICE int tile(int t, int u) { return (u * warps + t / 32) * 16; }

  /// Leaves x, element d of query i, in two, where the lane is that takes it.
  static BUZZ_DEVICE void put(Shared& shared, int i, int d, float x, float factor) {
    Bits& bits = shared.query[i / 8][d / 32 * 2 + d % 8 / 4][i % 8 * 4 + d % 32 / 8];
    BUZZ_UNROLL
    for (int part = 0; part < 2; ++part) {
      const T its = from_float<T>(x);
      place(bits, d % 4 / 2 * 2 + part, d % 2, its);
      x -= to_float(its);
    }
    if (d == 0) shared.factor[i] = factor;
  }

  BUZZ_DEVICE void start(Lane& l, const Shared& shared, int t, const Part& part) const {
    BUZZ_UNROLL
    for (int n = 0; n < eights; ++n) {
      Base::start(l, n, part, 8 * n + group_of(t), true);
      l.factor[n] = shared.factor[8 * n + group_of(t)];
      for_out([&](int p, int e, int x) { l.out[n][p][e][x] = 0; });
      BUZZ_UNROLL
      for (int k = 0; k < 2; ++k)
        l.token[2 * n + k] = step.queries.seen(part.first + 8 * n + 2 * member_of(t) + k, part.rows);
    }
  }

  /// Calls f(p, e, x) for each of a lane's sums of a query of each eight.
  template <class F>
  static BUZZ_DEVICE void for_out(F&& f) {
    BUZZ_UNROLL
    for (int p = 0; p < slabs; ++p) BUZZ_UNROLL
    for (int e = 0; e < 4; ++e) BUZZ_UNROLL
    for (int x = 0; x < 4; ++x) f(p, e, x);
  }
  /// Calls f(logit, n, row) for each of a lane's logits of the rows from r on.
  template <class F>
  static BUZZ_DEVICE void for_logits(Lane& l, int t, int r, F&& f) {
    BUZZ_UNROLL
    for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
    for (int n = 0; n < eights; ++n) BUZZ_UNROLL
    for (int h = 0; h < 2; ++h) BUZZ_UNROLL
    for (int x = 0; x < 2; ++x) f(l.logits[u][n][h][x], n, r + tile(t, u) + row_of(t, h, x));
  }

  /// As Attend's.
  template <bool all, class Block, class Lanes>
  BUZZ_DEVICE void take(Block& block, Lanes& lane, const Shared& shared, const Part& part, int r, bool more) const {
    block.alone([&](int t) { load_values<all>(lane[t], t, part, r); });
    multiply_keys(block, lane, shared);
    const auto logits_of = [&](int t) { return [&lane, t, r](auto&& f) { for_logits(lane[t], t, r, f); }; };
    block.alone([&](int t) {
      if (all && more) load_keys<all>(lane[t], t, part, r + at_once);
      this->template find_top<all>(lane[t], part, logits_of(t));
    });
    this->template share_top<4, Lane>(block, lane);
    block.alone([&](int t) {
      this->template weigh<all>(lane[t], part, 0, logits_of(t));
      round_weights(lane[t]);
    });
    block.pick(lane, &Lane::before, &Lane::scale, [](int t, int k) { return 4 * (2 * member_of(t) + k % 2); });
    add<all>(block, lane, part, r);
  }

  /// The 16 bytes of a lane of the keys from row r on. In place of a row past the end it is the last one, in place of
  /// what is past a row's elements, which the queries have zeros for, its first.
  template <bool all>
  BUZZ_DEVICE void load_keys(Lane& l, int t, const Part& part, int r) const {
    BUZZ_UNROLL
    for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
    for (int h = 0; h < 2; ++h) {
      const T* from =
          this->template row_at<all>(part.keys, step.keys.inner, r + tile(t, u) + group_of(t), 8 * h, part.end);
      const int d = 8 * member_of(t);
      BUZZ_UNROLL
      for (int j = 0; j < packs; ++j) l.keys[u][h][j] = bits_at(d + 32 * j < key_dim() ? from + d + 32 * j : from);
    }
  }
  /// The same of the values.
  template <bool all>
  BUZZ_DEVICE void load_values(Lane& l, int t, const Part& part, int r) const {
    BUZZ_UNROLL
    for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
    for (int k = 0; k < 4; ++k) {
      const T* from = this->template row_at<all>(part.values, step.values.inner, r + tile(t, u) + row_of(t, 0, 0),
                                                 row_of(0, k / 2, k % 2), part.end);
      const int d = 8 * group_of(t);
      BUZZ_UNROLL
      for (int p = 0; p < slabs; ++p) l.rows[u][k][p] = bits_at(d + 64 * p < value_dim() ? from + d + 64 * p : from);
    }
  }

  /// The products of the queries and the keys, of both parts of a query, times its factor.
  template <class Block, class Lanes>
  BUZZ_DEVICE void multiply_keys(Block& block, Lanes& lane, const Shared& shared) const {
    block.alone([&](int t) {
      BUZZ_UNROLL
      for (auto& of_tile : lane[t].logits) BUZZ_UNROLL
      for (auto& of_eight : of_tile) BUZZ_UNROLL
      for (auto& half : of_eight) BUZZ_UNROLL
      for (float& x : half) x = 0;
    });
    BUZZ_UNROLL
    for (int n = 0; n < eights; ++n) BUZZ_UNROLL
    for (int s = 0; s < 2 * packs; ++s) {
      block.alone([&](int t) { lane[t].query = shared.query[n][s][t % 32]; });
      BUZZ_UNROLL
      for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
      for (int h = 0; h < 2; ++h)
        block.template multiply<T>([&](int t) { return lane[t].query; },
                                   [&](int t) {
                                     const Bits& its = lane[t].keys[u][h][s / 2];
                                     const int e = s % 2 * 2;
                                     return Pair{{its.words[e], its.words[e + 1]}};
                                   },
                                   [&](int t) -> float(&)[4] { return lane[t].logits[u][n][h]; });
    }
    block.alone([&](int t) {
      BUZZ_UNROLL
      for (auto& of_tile : lane[t].logits) BUZZ_UNROLL
      for (int n = 0; n < eights; ++n) BUZZ_UNROLL
      for (auto& half : of_tile[n]) BUZZ_UNROLL
      for (int x = 0; x < 2; ++x) half[x] = lane[t].factor[n] * (half[x] + half[x + 2]);
    });
  }

  static BUZZ_DEVICE void round_weights(Lane& l) {
    BUZZ_UNROLL
    for (int u = 0; u < tiles; ++u) BUZZ_UNROLL
    for (int n = 0; n < eights; ++n) BUZZ_UNROLL
    for (int h = 0; h < 2; ++h) l.weights[u][n].words[h] = Join<T>::floats(l.logits[u][n][h][0], l.logits[u][n][h][1]);
  }

  /// A lane's fragment of the values, as columns; rows other than [from, end) are 0.
  template <bool all>
  static BUZZ_DEVICE Bits of_values(const Lane& l, int t, int u, int p, int e, int r, int from, int end) {
    std::uint32_t words[4];
    BUZZ_UNROLL
    for (int k = 0; k < 4; ++k) {
      const int row = r + tile(t, u) + row_of(t, k / 2, k % 2);
      words[k] = all || (row >= from && row < end) ? l.rows[u][k][p].words[e] : 0;
    }
    return {{lows(words[0], words[1]), highs(words[0], words[1]), lows(words[2], words[3]), highs(words[2], words[3])}};
  }

  /// Adds the values by their weights. Where not all queries see all rows that is done token by token: a row that one
  /// does not see, and that is 0 for it, may be seen by another.
  template <bool all, class Block, class Lanes>
  BUZZ_DEVICE void add(Block& block, Lanes& lane, const Part& part, int r) const {
    block.alone([&](int t) {
      BUZZ_UNROLL
      for (int n = 0; n < eights; ++n)
        for_out([&](int p, int e, int x) { lane[t].out[n][p][e][x] *= lane[t].scale[2 * n + x % 2]; });
    });
    const int first = all ? 0 : step.queries.seen(part.first, part.rows);
    const int last = all ? 0 : step.queries.seen(part.first + part.here - 1, part.rows);
    for (int token = first; token <= last; ++token) {
      const int from = step.template window_begin<modified>(token), end = token < part.end ? token : part.end;
      BUZZ_UNROLL
      for (int p = 0; p < slabs; ++p) BUZZ_UNROLL
      for (int e = 0; e < 4; ++e) BUZZ_UNROLL
      for (int n = 0; n < eights; ++n) {
        if (!all) {
          block.alone([&](int t) {
            BUZZ_UNROLL
            for (float& x : lane[t].fresh) x = 0;
          });
        }
        BUZZ_UNROLL
        for (int u = 0; u < tiles; ++u)
          block.template multiply<T>([&](int t) { return of_values<all>(lane[t], t, u, p, e, r, from, end); },
                                     [&](int t) { return lane[t].weights[u][n]; },
                                     [&](int t) -> float(&)[4] { return all ? lane[t].out[n][p][e] : lane[t].fresh; });
        if (!all) {
          block.alone([&](int t) {
            BUZZ_UNROLL
            for (int x = 0; x < 4; ++x)
              if (lane[t].token[2 * n + x % 2] == token) lane[t].out[n][p][e][x] += lane[t].fresh[x];
          });
        }
      }
    }
  }

  /// What thread t leaves for the others.
  static BUZZ_DEVICE void leave(const Lane& l, Parts<warps, queries, dims>& parts, int t) {
    const int warp = t / 32;
    BUZZ_UNROLL
    for (int n = 0; n < eights; ++n) {
      const int i = 8 * n + group_of(t);
      if (member_of(t) == 0) parts.top[warp][i] = l.top[n], parts.sum[warp][i] = l.sum[n];
      for_out([&](int p, int e, int x) {
        parts.out[warp][8 * n + 2 * member_of(t) + x % 2][64 * p + 8 * group_of(t) + 2 * e + x / 2] = l.out[n][p][e][x];
      });
    }
  }
};

}  // namespace cuda
}  // namespace buzz
