#pragma once

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/step.cuh"

namespace buzz {
namespace cuda {

/// Moves the kept rows of K and V, their scores and their positions to the front, in place, and ends the step: grid
/// (blocks(), kv_heads, sequences). Rows past the kept ones are left as they are. O(moved bytes).
///
/// No two blocks touch the same bytes: a block owns a slice of the columns of one head of one tensor. Within it kept
/// row i moves to i from kept[i] >= i, tile after tile, ascending: a tile's rows are all in registers before the first
/// is stored, and its stores end before the first row that a later tile reads, since that is not before its own place.
template <class T>
struct Compact {
  static constexpr int threads = 256;  ///< of a block
  static constexpr int columns = 4;    ///< packs of a row that a block moves
  static constexpr int unroll = 4;     ///< packs of a tile that a thread moves
  /// None.
  struct Shared {};

  StepOf<T> step;  ///< rows, scores and positions are moved; of states `then` is written

  /// Of a row of `dim` elements, a block each.
  static BUZZ_HOST_DEVICE int slices(int dim) { return (dim / Pack<T>::size - 1) / columns + 1; }
  /// A KV head: of its keys, its values, and all else.
  BUZZ_HOST_DEVICE int blocks() const { return slices(step.head_dim) + slices(step.value_dim()) + 1; }

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared&) const {
    const int head = block.y(), s = block.z(), part = block.x();
    const Lengths now = step.states[s].now, then = evicted(now, step.protect, step.rule);
    const bool last = part == blocks() - 1;
    if (last && head == 0)
      block.alone([&](int t) {
        if (t == 0) step.states[s].then = then;
      });
    const Regions r = now.regions(step.protect);
    if (!step.rule.should_evict(r.middle())) return;
    const std::int32_t* from = step.kept_of(s, head);
    if (!last) {
      const int of_keys = slices(step.head_dim);
      const Tensor<T>& rows = part < of_keys ? step.keys : step.values;
      const int packs = (part < of_keys ? step.head_dim : step.value_dim()) / Pack<T>::size;
      const int first = (part < of_keys ? part : part - of_keys) * columns;
      const int width = packs - first < columns ? packs - first : columns;
      // The sink stays where it is.
      move<columns>(block, from, r.sink, then.rows, width, rows.row(s, head, 0) + first * Pack<T>::size, rows.inner,
                    Pack<T>());
      return;
    }
    const long long at = step.begin(s, head);
    move<1>(block, from, r.sink, then.rows, 1, step.scores + at, 1, 0.);
    move<1>(block, from, r.sink, then.rows, 1, step.positions + at, 1, std::int32_t());
    const int forgotten = step.rule.forgotten(r.hive, r.unfiltered);
    if (forgotten >= 0)
      block.phase([&](int t) {
        for (int i = t; i < r.sink + forgotten; i += threads) step.scores[at + i] = 0;
      });
  }

 private:
  /// Rows [begin, end) of `width` units each, the first at `data`, `stride` values apart; `wide` columns of threads.
  template <int wide, class Block, class V, class Unit>
  BUZZ_DEVICE void move(Block& block, const std::int32_t* from, int begin, int end, int width, V* data,
                        long long stride, Unit) const {
    constexpr int high = threads / wide, tile = high * unroll;
    struct Units {
      Unit units[unroll];
    };
    typename Block::template Private<Units> held(block);
    const auto unit = [&](int row, int t) { return reinterpret_cast<Unit*>(data + row * stride) + t % wide; };
    for (int first = begin; first < end; first += tile) {
      block.phase([&](int t) {
        for (int u = 0; u < unroll; ++u) {
          const int row = first + u * high + t / wide;
          if (row < end && t % wide < width) held[t].units[u] = *unit(from[row], t);
        }
      });
      // The next tile may be loaded while this one is stored.
      block.alone([&](int t) {
        for (int u = 0; u < unroll; ++u) {
          const int row = first + u * high + t / wide;
          if (row < end && t % wide < width) *unit(row, t) = held[t].units[u];
        }
      });
    }
    block.phase([&](int) {});
  }
};

/// After Compact, in compact positions: rotates each key that moved on by the distance of its move, in place, in float,
/// rounded once. A thread a pair of elements, then the one as many on as there are threads: grid (blocks(), kv_heads,
/// sequences). O(moved rows * dims).
template <class T>
struct Rerotate {
  static constexpr int threads = 128;      ///< of a block
  static constexpr int most_blocks = 256;  ///< a KV head
  /// None.
  struct Shared {};

  StepOf<T> step;  ///< keys, compacted, are rotated

  /// Blocks a KV head: a thread for each pair of each of capacity rows, as far as most_blocks go.
  BUZZ_HOST_DEVICE int blocks() const {
    const long long wanted = (static_cast<long long>(step.capacity) * (step.rotation.dims / 2) - 1) / threads + 1;
    return wanted < most_blocks ? static_cast<int>(wanted) : most_blocks;
  }

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared&) const {
    const int head = block.y(), s = block.z();
    const DeviceRotation& rotation = step.rotation;
    const Lengths now = step.states[s].now;
    if (!step.rule.should_evict(now.regions(step.protect).middle())) return;
    const int rows = evicted(now, step.protect, step.rule).rows, half = rotation.dims / 2;
    const std::int32_t* from = step.kept_of(s, head);
    const long long count = static_cast<long long>(rows) * half, stride = static_cast<long long>(blocks()) * threads;
    block.alone([&](int t) {
      for (long long i = static_cast<long long>(block.x()) * threads + t; i < count; i += stride) {
        const int row = static_cast<int>(i / half), pair = static_cast<int>(i % half);
        if (from[row] == row) continue;
        float cos, sin;
        rotation.angle(row - from[row], 1, pair, &cos, &sin);
        T* key = step.keys.row(s, head, row);
        const float a = to_float(key[rotation.first_of(pair)]), b = to_float(key[rotation.second_of(pair)]);
        key[rotation.first_of(pair)] = from_float<T>(a * cos - b * sin);
        key[rotation.second_of(pair)] = from_float<T>(a * sin + b * cos);
      }
    });
  }
};

}  // namespace cuda
}  // namespace buzz
