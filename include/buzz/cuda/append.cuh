#pragma once

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/step.cuh"

namespace buzz {
namespace cuda {

/// Appends a call's keys, rotated, and values to the cached rows, with their positions and scores of 0, and leaves the
/// rotations for the queries. Where the capacity does not suffice, as in a step that is replayed too often, no row of
/// that sequence is written and none is counted. A block a token and KV head of a sequence: grid (tokens, kv_heads,
/// sequences). O(tokens * kv_heads * head_dim) a sequence.
template <class T>
struct Append {
  static constexpr int threads = 128;    ///< of a block
  static constexpr int most_dims = 256;  ///< most rotated elements of a head
  /// A block's.
  struct Shared {
    float angles[most_dims];  ///< of its token: cosines, then sines
  };

  StepOf<T> step;     ///< the new rows are written, with positions, scores and angles; of states `now`
  Tensor<const T> k;  ///< [count, tokens, kv_heads, head_dim], unrotated
  Tensor<const T> v;  ///< [count, tokens, kv_heads, value_dim]

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const int token = block.x(), head = block.y(), s = block.z();
    const DeviceRotation& rotation = step.rotation;
    const Lengths before = step.states[s].then;
    const int row = before.rows + token, dims = rotation.dims;
    const bool fits = before.rows <= step.capacity - step.queries.tokens;
    block.phase([&](int t) {
      for (int i = t; i < dims / 2; i += threads)
        rotation.angle(rotation.compact ? row : before.next + token, rotation.factor, i, shared.angles + i,
                       shared.angles + dims / 2 + i);
    });
    block.alone([&](int t) {
      const T *key = k.row(s, token, head), *value = v.row(s, token, head);
      for (int d = t; fits && (d < step.head_dim || d < step.value_dim()); d += threads) {
        if (d < step.head_dim)
          step.keys.row(s, head, row)[d] =
              rotation.rotates(d) ? from_float<T>(rotation.rotated(key, shared.angles, d)) : key[d];
        if (d < step.value_dim()) step.values.row(s, head, row)[d] = value[d];
      }
      if (t == 0 && fits) {
        step.positions[step.begin(s, head) + row] = before.next + token;
        step.scores[step.begin(s, head) + row] = 0;
      }
      if (head != 0) return;
      for (int i = t; i < dims; i += threads) step.angles_of(s, token)[i] = shared.angles[i];
      if (t == 0 && token == 0) step.states[s].now = fits ? appended(before, step.queries.tokens) : before;
    });
  }
};

}  // namespace cuda
}  // namespace buzz
