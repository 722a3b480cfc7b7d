#pragma once

#include <cmath>

#include "buzz/cuda/attention.cuh"

namespace buzz {
namespace cuda {

/// Softmax attention of a call's queries over a part of the cached rows, in one pass (Milakov and Gimelshein, arXiv
/// 1805.02867), split over rows as in Flash-Decoding. A block takes `queries` query rows of one KV head, so that they
/// share the loads: grid (splits * ceil(tokens * group / queries), kv_heads, sequences). Sixteen lanes read a row,
/// `packs` times 16 bytes each. Where a query sees each row of a step, nothing is asked of a row; else each logit is
/// looked at. Rows past the end are never read, nor is a row that a query does not see multiplied by 0: there could be
/// a NaN in it. Without `modified` there are no Modifiers, and values are of the keys' size, which is not looked at.
/// O(tokens * query_heads * rows * head_dim).
///
/// A group's logits are `unroll` of the first query, then of the next, ... Its lanes deal them out among themselves, so
/// that a logit is looked at, and its exponential made, once: lane l has those of one query, `own` of them.
template <class T, int packs, int queries, bool modified>
struct Attend : AttentionKernel<T, modified> {
  using Base = AttentionKernel<T, modified>;  ///< what all have
  using Base::step;
  using typename Base::Part;
  static constexpr int threads = 128;                       ///< of a block
  static constexpr int lanes = 16;                          ///< threads that read a row
  static constexpr int groups = threads / lanes;            ///< of lanes
  static constexpr int unroll = packs < 4 ? 4 / packs : 1;  ///< rows that a group has under way: 8 loads with values
  static constexpr int at_once = groups * unroll;           ///< rows that the block has under way
  static constexpr int values = packs * Pack<T>::size;      ///< most of a lane
  static constexpr int dims = lanes * values;               ///< most of a row
  static constexpr int pairs = unroll * queries;            ///< of a query and a row that a group has under way
  static constexpr int own = pairs > lanes ? pairs / lanes : 1;   ///< of them, a lane's
  static constexpr int sharers = lanes / queries;                 ///< lanes that have logits of the same query
  static constexpr int same = pairs < lanes ? lanes / pairs : 1;  ///< lanes that have the same logit
  static constexpr float unseen = -1;                             ///< the weight of a row that the query does not see
  static_assert(sharers > 1, "two lanes a query at least");
  /// What a block shares: before the end, `out[0]` are the queries, rotated and scaled.
  using Shared = Parts<groups, queries, dims>;
  /// What a thread holds; its group's softmax so far is that of the lane's own query, and `out`.
  struct Lane : Softmax<1> {
    float query[queries][values];  ///< rotated and scaled
    float out[queries][values];    ///< the sum of 2^(logit - top) times the value
    Bits keys[unroll][packs];      ///< of the rows under way
    Bits rows[unroll][packs];      ///< their values
    float logits[pairs];           ///< of them, then 2^(logit - top), or `unseen`
    float room[pairs];             ///< for deal_sums()
    float scale[queries];          ///< what the queries' sums so far are to be multiplied by
  };
  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const Part part = this->template part_of<queries, at_once>(block);
    typename Block::template Private<Lane> lane(block);
    block.phase([&](int t) {
      this->template for_queries<queries, dims, threads>(
          t, part, [&](int i, int d, float x, float factor) { shared.out[0][i][d] = factor * x; });
    });
    block.phase([&](int t) { start(lane[t], shared, t % lanes, part); });
    this->template for_rows<at_once>(
        part,
        [&](auto all, int r) { block.alone([&](int t) { load_keys<decltype(all)::value>(lane[t], t, part, r); }); },
        [&](auto all, int r, bool more) { take<decltype(all)::value>(block, lane, part, r, more); });
    block.alone([&](int t) {
      if (t % same != 0) lane[t].sum[0] = 0;
    });
    block.template add_lanes<sharers>(lane, &Lane::sum);
    block.phase([&](int t) {
      const Lane& l = lane[t];
      const int g = t / lanes, i = t % lanes / sharers;
      if (t % sharers == 0) shared.top[g][i] = l.top[0], shared.sum[g][i] = l.sum[0];
      BUZZ_UNROLL
      for (int k = 0; k < queries; ++k) {
        BUZZ_UNROLL
        for (int j = 0; j < values; ++j) shared.out[g][k][element(t % lanes, j)] = l.out[k][j];
      }
    });
    block.alone([&](int t) {
      for (int i = 0; i < part.here; ++i) this->template finish<threads>(shared, t, part, i, value_dim());
    });
  }

 private:
  BUZZ_DEVICE int value_dim() const { return modified ? step.value_dim() : step.head_dim; }
  /// A lane's value j is this element of a row.
  static BUZZ_DEVICE int element(int lane, int j) {
    return (j / Pack<T>::size * lanes + lane) * Pack<T>::size + j % Pack<T>::size;
  }

  BUZZ_DEVICE void start(Lane& l, const Shared& shared, int lane, const Part& part) const {
    BUZZ_UNROLL
    for (int i = 0; i < queries; ++i) {
      BUZZ_UNROLL
      for (int j = 0; j < values; ++j) {
        l.query[i][j] = shared.out[0][i][element(lane, j)];
        l.out[i][j] = 0;
      }
    }
    Base::start(l, 0, part, lane / sharers, lane % same == 0);
  }

  /// Takes at_once rows from row r on, whose keys are loaded, into the softmax and the weighted sum of the values; all:
  /// each query sees each. more: the same is true of the at_once rows after them, whose keys are loaded.
  template <bool all, class Block, class Lanes>
  BUZZ_DEVICE void take(Block& block, Lanes& lane, const Part& part, int r, bool more) const {
    block.alone([&](int t) {
      load_rows<all>(lane[t].rows, part.values, step.values.inner, value_dim(), t, r, part.end);
      dots(lane[t], t % lanes);
      if (all && more) load_keys<all>(lane[t], t, part, r + at_once);
    });
    deal_sums<pairs, lanes / 2>(block, lane, &Lane::logits, &Lane::room);
    const auto logits_of = [&](int t) {
      return [&lane, t, r](auto&& f) {
        BUZZ_UNROLL
        for (int i = 0; i < own; ++i) f(lane[t].logits[i], 0, r + t / lanes + own_row(t % lanes, i));
      };
    };
    block.alone([&](int t) { this->template find_top<all>(lane[t], part, logits_of(t)); });
    this->template share_top<sharers, Lane>(block, lane);
    block.alone([&](int t) {
      this->template weigh<all>(lane[t], part, unseen, logits_of(t));
      lane[t].scale[0] = lane[t].before[0];
    });
    block.template share<lanes>(lane, &Lane::logits);
    block.template share<lanes>(lane, &Lane::scale);
    block.alone([&](int t) { add<all>(lane[t]); });
  }

  /// The 16 bytes of thread t, of each pack, of its group's rows from row r on. In place of a row past the end it is
  /// the last one, in place of what is past a row's dimensions its first. What is loaded here is used after later
  /// loads.
  template <bool all>
  BUZZ_DEVICE void load_rows(Bits (&to)[unroll][packs], const T* from, long long stride, int dim, int t, int r,
                             int end) const {
    const int first = r + t / lanes;
    from += stride * (all || first < end ? first : end - 1);
    BUZZ_UNROLL
    for (int u = 0; u < unroll; ++u) {
      BUZZ_UNROLL
      for (int p = 0; p < packs; ++p) {
        const int d = element(t % lanes, p * Pack<T>::size);
        to[u][p] = bits_at(from + (d < dim ? d : 0));
      }
      if (all || first + (u + 1) * groups < end) from += groups * stride;
    }
  }
  template <bool all>
  BUZZ_DEVICE void load_keys(Lane& l, int t, const Part& part, int r) const {
    load_rows<all>(l.keys, part.keys, step.keys.inner, step.head_dim, t, r, part.end);
  }

  /// The lane's part of those rows' logits.
  BUZZ_DEVICE void dots(Lane& l, int lane) const {
    BUZZ_UNROLL
    for (int u = 0; u < unroll; ++u) {
      BUZZ_UNROLL
      for (int i = 0; i < queries; ++i) l.logits[i * unroll + u] = 0;
      BUZZ_UNROLL
      for (int p = 0; p < packs; ++p) {
        Bits bits = l.keys[u][p];
        BUZZ_UNROLL
        for (std::uint32_t& word : bits.words) word = element(lane, p * Pack<T>::size) < step.head_dim ? word : 0;
        float key[Pack<T>::size];
        unpack<T>(bits, key);
        BUZZ_UNROLL
        for (int e = 0; e < Pack<T>::size; ++e) {
          BUZZ_UNROLL
          for (int i = 0; i < queries; ++i) l.logits[i * unroll + u] += l.query[i][p * Pack<T>::size + e] * key[e];
        }
      }
    }
  }

  /// The row, beside the group's first under way, of the lane's own logit i.
  static BUZZ_DEVICE int own_row(int lane, int i) { return (lane * pairs / lanes + i) % unroll * groups; }

  /// Adds the values by their weights.
  template <bool all>
  BUZZ_DEVICE void add(Lane& l) const {
    bool raised = false;
    BUZZ_UNROLL
    for (int i = 0; i < queries; ++i) raised |= l.scale[i] != 1;
    if (raised) {
      BUZZ_UNROLL
      for (int i = 0; i < queries; ++i) {
        BUZZ_UNROLL
        for (int j = 0; j < values; ++j) l.out[i][j] *= l.scale[i];
      }
    }
    BUZZ_UNROLL
    for (int u = 0; u < unroll; ++u) {
      BUZZ_UNROLL
      for (int p = 0; p < packs; ++p) {
        float x[Pack<T>::size];
        unpack<T>(l.rows[u][p], x);
        BUZZ_UNROLL
        for (int i = 0; i < queries; ++i) {
          const float weight = l.logits[i * unroll + u];
          if (!all && weight == unseen) continue;
          BUZZ_UNROLL
          for (int e = 0; e < Pack<T>::size; ++e) l.out[i][p * Pack<T>::size + e] += weight * x[e];
        }
      }
    }
  }
};

}  // namespace cuda
}  // namespace buzz
