#pragma once

#include <cstddef>

#include "buzz/cuda/attend.cuh"
#include "buzz/shape.h"

namespace buzz {
namespace cuda {

/// What a cache of several sequences needs beside its options.
struct Batch {
  int sequences = 1;  // most that live at once
  /// Calls of up to so many tokens leave their logits for the scores; longer ones make them again from the keys and the
  /// log-sum-exps. A float each, for every query head and row of a sequence.
  int kept_logits = 1;
  /// Into how many parts the rows of a call of few tokens are split, so that all of the card has work; 0: as many as
  /// make 512 blocks, with 64 rows each at least.
  int splits = 0;
};

/// The device memory of one layer, in one piece: [..] as written, nothing between but padding to 256 bytes.
template <class T>
struct Buffers {
  static constexpr int few_tokens = 16;  // of a call that is split over rows

  T *keys, *values;         // [sequences, kv_heads, capacity, head_dim]
  float* scores;            // [sequences, kv_heads, capacity]
  std::int32_t* positions;  // the same
  std::int32_t* kept;       // the same
  float* worth;             // [2, sequences, kv_heads, capacity]
  std::int32_t* picks;      // the same
  float* diversity;         // [sequences, kv_heads, capacity], where the score looks at keys
  double* norms;            // the same
  float* angles;            // [sequences, max_chunk, dims]
  float* lse;               // [sequences, max_chunk, query_heads], where the score is mass
  Partial partial;          // of calls of up to few_tokens tokens; top and sum of longer ones, unsplit
  State* states;            // [sequences]
  double* frequencies;      // [dims / 2]
  std::size_t bytes = 0;

  /// base: 256-byte aligned, or null to count the bytes.
  Buffers(void* base, const Shape& shape, const Batch& batch, int capacity, int dims, bool mass, bool rows)
      : base_(static_cast<char*>(base)) {
    const std::size_t sequences = count(batch.sequences), per_head = sequences * count(shape.kv_heads);
    const std::size_t cached = per_head * count(capacity), query_heads = sequences * count(shape.query_heads);
    partial.splits = batch.splits != 0 ? batch.splits : usual_splits(shape, batch, capacity);
    take(&keys, cached * count(shape.head_dim));
    take(&values, cached * count(shape.head_dim));
    take(&scores, cached);
    take(&positions, cached);
    take(&kept, cached);
    take(&worth, 2 * cached);
    take(&picks, 2 * cached);
    take(&diversity, rows ? cached : 0);
    take(&norms, rows ? cached : 0);
    take(&angles, sequences * count(shape.max_chunk) * count(dims));
    take(&lse, mass ? query_heads * count(shape.max_chunk) : 0);
    const std::size_t parts = count(few(shape)) * count(partial.splits), most = count(shape.max_chunk);
    take(&partial.out, partial.splits == 1 ? 0 : query_heads * parts * count(shape.head_dim));
    take(&partial.top, query_heads * (parts < most ? most : parts));
    take(&partial.sum, query_heads * (parts < most ? most : parts));
    take(&partial.logits, mass ? query_heads * count(batch.kept_logits) * count(capacity) : 0);
    take(&states, sequences);
    take(&frequencies, count(dims / 2));
  }

  static int few(const Shape& shape) { return shape.max_chunk < few_tokens ? shape.max_chunk : few_tokens; }

 private:
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  static int usual_splits(const Shape& shape, const Batch& batch, int capacity) {
    const long long blocks = static_cast<long long>(batch.sequences) * shape.kv_heads;
    const long long wanted = (512 - 1) / blocks + 1, most = (capacity - 1) / 64 + 1;
    return static_cast<int>(wanted < most ? wanted : most);
  }

  template <class V>
  void take(V** pointer, std::size_t n) {
    *pointer = n == 0 || base_ == nullptr ? nullptr : reinterpret_cast<V*>(base_ + bytes);
    bytes += (n * sizeof(V) + 255) / 256 * 256;
  }

  char* base_;
};

}  // namespace cuda
}  // namespace buzz
