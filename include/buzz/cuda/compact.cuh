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
      move(block, {from, r.sink, then.rows},
           Columns<Pack<T>, T, columns>{rows.row(s, head, 0) + first * Pack<T>::size, rows.inner, width});
      return;
    }
    const long long at = step.begin(s, head);
    move(block, {from, r.sink, then.rows}, Columns<double, double, 1>{step.scores + at, 1, 1});
    move(block, {from, r.sink, then.rows}, Columns<std::int32_t, std::int32_t, 1>{step.positions + at, 1, 1});
    const int forgotten = step.rule.forgotten(r.hive, r.unfiltered);
    if (forgotten >= 0)
      block.phase([&](int t) {
        for (int i = t; i < r.sink + forgotten; i += threads) step.scores[at + i] = 0;
      });
  }

 private:
  /// Which rows move: row i of [begin, end) is row from[i] before. The sink, before them, stays where it is.
  struct Moved {
    const std::int32_t* from;
    int begin, end;
  };
  /// What of a row moves: `width` Units, up to `wide`, of which there is a thread each.
  template <class Unit, class V, int wide_>
  struct Columns {
    static constexpr int wide = wide_;
    V* data;           // of row 0
    long long stride;  // of rows, in values
    int width;

    BUZZ_DEVICE Unit& at(int row, int t) const { return reinterpret_cast<Unit*>(data + row * stride)[t % wide]; }
  };

  template <class Block, class Unit, class V, int wide>
  BUZZ_DEVICE void move(Block& block, const Moved& moved, const Columns<Unit, V, wide>& its) const {
    constexpr int high = threads / wide, tile = high * unroll;
    struct Units {
      Unit units[unroll];
    };
    typename Block::template Private<Units> held(block);
    for (int first = moved.begin; first < moved.end; first += tile) {
      // Calls f with each of a thread's units of the tile, and its row.
      const auto each = [&](int t, auto&& f) {
        for (int u = 0; u < unroll; ++u) {
          const int row = first + u * high + t / wide;
          if (row < moved.end && t % wide < its.width) f(held[t].units[u], row);
        }
      };
      block.phase([&](int t) { each(t, [&](Unit& unit, int row) { unit = its.at(moved.from[row], t); }); });
      // The next tile may be loaded while this one is stored.
      block.alone([&](int t) { each(t, [&](Unit& unit, int row) { its.at(row, t) = unit; }); });
    }
    block.phase([&](int) {});
  }
};

/// After Compact, in compact positions: rotates each key that moved on by the distance of its move, in place, in float,
/// rounded once. A thread a pair of elements of a row, then of the row as many on as there are threads for: grid
/// (blocks(), kv_heads, sequences). O(moved rows * dims).
template <class T>
struct Rerotate {
  static constexpr int threads = 128;  ///< of a block
  /// None.
  struct Shared {};

  StepOf<T> step;  ///< keys, compacted, are rotated

  /// Rows that a block rotates at once, and blocks a KV head.
  /// @{
  BUZZ_HOST_DEVICE int at_once() const { return threads / (step.rotation.dims / 2); }
  BUZZ_HOST_DEVICE int blocks() const { return step.row_blocks(at_once()); }
  /// @}

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared&) const {
    const int head = block.y(), s = block.z();
    const DeviceRotation& rotation = step.rotation;
    const Lengths now = step.states[s].now;
    if (!step.rule.should_evict(now.regions(step.protect).middle())) return;
    const int rows = evicted(now, step.protect, step.rule).rows, half = rotation.dims / 2;
    const std::int32_t* from = step.kept_of(s, head);
    const int first = block.x() * at_once(), stride = blocks() * at_once();
    block.alone([&](int t) {
      const int pair = t % half;
      if (t / half >= at_once()) return;
      for (int row = first + t / half; row < rows; row += stride) {
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
