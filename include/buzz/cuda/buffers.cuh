#pragma once

#include <cstddef>

#include "buzz/cuda/attend.cuh"
#include "buzz/score/score.h"
#include "buzz/shape.h"

namespace buzz {
namespace cuda {

/// What a cache of several sequences needs beside its options.
struct Batch {
  int sequences = 1;  ///< most that live at once; 1 to 65535
  /// Calls of up to so many tokens leave their logits for the scores; longer ones make them again from the keys and the
  /// log-sum-exps. A float each, for every query head and row of a sequence. 0 to max_chunk, 16 at most.
  int kept_logits = 1;
  /// Into how many parts the rows of a call of few tokens are split, so that all of the card has work; 0: as many as
  /// make 512 blocks with the sequences and KV heads, and at most one for each 64 rows of capacity and the rest. 0 to
  /// 1024.
  int splits = 0;
};

/// Device memory in bytes: a layer's own, and room to work in, which layers whose steps come one after the other on a
/// stream can share.
struct Bytes {
  std::size_t cache = 0;      ///< a layer's own
  std::size_t workspace = 0;  ///< to be shared
};

/// Where in the two it is: [..] as written, nothing between but padding to 256 bytes. What is empty is null.
template <class T>
struct Buffers {
  static constexpr int few_tokens = 16;  ///< most of a call that is split over rows

  // The cache.
  T* keys;                  ///< [sequences, kv_heads, capacity, head_dim]
  T* values;                ///< the same
  double* scores;           ///< [sequences, kv_heads, capacity]
  std::int32_t* positions;  ///< the same
  std::int32_t* kept;       ///< the same; used as [sequences, lists, capacity]
  State* states;            ///< [sequences]
  double* frequencies;      ///< [dims / 2], radians a position
  // The workspace.
  double* worth;        ///< [2, sequences, kv_heads, capacity], Select's room
  std::int32_t* picks;  ///< the same
  double* diversity;    ///< [sequences, kv_heads, capacity], where the score looks at keys
  double* norms;        ///< the same
  float* angles;        ///< [sequences, max_chunk, dims], the call's rotations
  float* lse;           ///< [sequences, max_chunk, query_heads], where the score is attention
  Partial partial;      ///< of calls of up to few_tokens tokens; top and sum of longer ones, unsplit
  Bytes bytes;          ///< of all that

  /// cache, workspace: 256-byte aligned, or null to count the bytes; dims: rotated elements of a head; needs: the
  /// score's. The caller has checked shape and batch.
  Buffers(void* cache, void* workspace, const Shape& shape, const Batch& batch, int capacity, int dims,
          const Needs& needs) {
    const std::size_t sequences = count(batch.sequences), per_head = sequences * count(shape.kv_heads);
    const std::size_t cached = per_head * count(capacity), query_heads = sequences * count(shape.query_heads);
    partial.splits = batch.splits != 0 ? batch.splits : usual_splits(shape, batch, capacity);
    const auto own = [&](auto** pointer, std::size_t n) { take(cache, &bytes.cache, pointer, n); };
    own(&keys, cached * count(shape.head_dim));
    own(&values, cached * count(shape.head_dim));
    own(&scores, cached);
    own(&positions, cached);
    own(&kept, cached);
    own(&states, sequences);
    own(&frequencies, count(dims / 2));
    const auto room = [&](auto** pointer, std::size_t n) { take(workspace, &bytes.workspace, pointer, n); };
    room(&worth, 2 * cached);
    room(&picks, 2 * cached);
    room(&diversity, needs.keys ? cached : 0);
    room(&norms, needs.keys ? cached : 0);
    room(&angles, sequences * count(shape.max_chunk) * count(dims));
    room(&lse, needs.attention ? query_heads * count(shape.max_chunk) : 0);
    const std::size_t parts = count(few(shape)) * count(partial.splits), most = count(shape.max_chunk);
    room(&partial.out, partial.splits == 1 ? 0 : query_heads * parts * count(shape.head_dim));
    room(&partial.top, query_heads * (parts < most ? most : parts));
    room(&partial.sum, query_heads * (parts < most ? most : parts));
    room(&partial.logits, needs.attention ? query_heads * count(batch.kept_logits) * count(capacity) : 0);
  }

  /// Most tokens of a call that is split over rows, with calls of max_chunk.
  static int few(const Shape& shape) { return shape.max_chunk < few_tokens ? shape.max_chunk : few_tokens; }

 private:
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  static int usual_splits(const Shape& shape, const Batch& batch, int capacity) {
    const long long blocks = static_cast<long long>(batch.sequences) * shape.kv_heads;
    const long long wanted = (512 - 1) / blocks + 1, most = (capacity - 1) / 64 + 1;
    return static_cast<int>(wanted < most ? wanted : most);
  }

  template <class V>
  static void take(void* base, std::size_t* used, V** pointer, std::size_t n) {
    *pointer = n == 0 || base == nullptr ? nullptr : reinterpret_cast<V*>(static_cast<char*>(base) + *used);
    *used += (n * sizeof(V) + 255) / 256 * 256;
  }
};

}  // namespace cuda
}  // namespace buzz
