#pragma once

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/lengths.cuh"
#include "buzz/cuda/rotate.cuh"

namespace buzz {
namespace cuda {

/// Appends a call's keys, rotated, and values to the cached rows, with their positions and scores of 0, and leaves the
/// rotations for the queries. A block a token and KV head of a sequence: grid (tokens, kv_heads, sequences).
/// O(tokens * kv_heads * head_dim) a sequence.
template <class T>
struct Append {
  static constexpr int threads = 128;    ///< of a block
  static constexpr int most_dims = 256;  ///< most rotated elements of a head
  /// A block's.
  struct Shared {
    float angles[most_dims];  ///< of its token: cosines, then sines
  };

  Tensor<const T> k;        ///< [sequences, tokens, kv_heads, head_dim], unrotated
  Tensor<const T> v;        ///< the same
  Tensor<T> keys;           ///< [sequences, kv_heads, capacity, head_dim]; the new rows are written
  Tensor<T> values;         ///< the same
  std::int32_t* positions;  ///< [sequences, kv_heads, capacity]; the new rows' are written
  double* scores;           ///< the same
  float* angles;            ///< [sequences, max_chunk, turning.dims], to write: cosines, then sines
  State* states;            ///< [sequences]; `now` is written
  Turning turning;          ///< of keys and queries
  /// Sizes of the above.
  /// @{
  int kv_heads, head_dim, capacity, max_chunk, tokens;
  /// @}

  /// One block's work; see block.cuh.
  template <class Block>
  BUZZ_DEVICE void operator()(Block& block, Shared& shared) const {
    const int token = block.x(), head = block.y(), s = block.z();
    const Lengths before = states[s].then;
    const int row = before.rows + token, dims = turning.dims;
    block.phase([&](int t) {
      for (int i = t; i < dims / 2; i += threads)
        turning.angle(turning.compact ? row : before.next + token, turning.factor, i, shared.angles + i,
                      shared.angles + dims / 2 + i);
    });
    block.alone([&](int t) {
      const T *key = k.row(s, token, head), *value = v.row(s, token, head);
      for (int d = t; d < head_dim; d += threads) {
        keys.row(s, head, row)[d] = d < dims ? from_float<T>(turning.turned(key, shared.angles, d)) : key[d];
        values.row(s, head, row)[d] = value[d];
      }
      if (t == 0) {
        const long long at = (static_cast<long long>(s) * kv_heads + head) * capacity + row;
        positions[at] = before.next + token;
        scores[at] = 0;
      }
      if (head != 0) return;
      for (int i = t; i < dims; i += threads)
        angles[(static_cast<long long>(s) * max_chunk + token) * dims + i] = shared.angles[i];
      if (t == 0 && token == 0) states[s].now = appended(before, tokens);
    });
  }
};

}  // namespace cuda
}  // namespace buzz
