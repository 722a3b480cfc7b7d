#pragma once

#include <cstddef>
#include <initializer_list>

#include "buzz/cuda/attention.cuh"
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
  /// Into how many parts the rows of a call of few tokens are split, so that all of the card has work; 0: as
  /// usual_splits() has it, which asks the current device. 0 to 1024.
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
  T* values;                ///< [sequences, kv_heads, capacity, value_dim]
  double* scores;           ///< [sequences, kv_heads, capacity]
  std::int32_t* positions;  ///< the same
  std::int32_t* kept;       ///< the same; used as [sequences, lists, capacity]
  State* states;            ///< [sequences]
  double* frequencies;      ///< [dims / 2], radians a position
  float* of_heads;          ///< [2, query_heads], sinks and slopes, whether there are any or not
  // The workspace.
  double* importance;   ///< [2, sequences, kv_heads, capacity], Select's room
  std::int32_t* picks;  ///< the same
  double* diversity;    ///< [sequences, kv_heads, capacity], where the score looks at keys
  double* norms;        ///< the same
  float* angles;        ///< [sequences, max_chunk, dims], the call's rotations
  float* lse;           ///< [sequences, max_chunk, query_heads], where the score is attention
  Partial partial;      ///< of calls of up to few_tokens tokens; top and sum of longer ones, unsplit
  Bytes bytes;          ///< of all that

  /// cache, workspace: 256-byte aligned, or null to count the bytes; splits: at least 1; dims: rotated elements of a
  /// head; needs: the score's. The caller has checked shape and batch.
  Buffers(void* cache, void* workspace, const Shape& shape, const Batch& batch, int splits, int capacity, int dims,
          const Needs& needs) {
    const long long sequences = batch.sequences, cached = sequences * shape.kv_heads * capacity;
    const long long query_heads = sequences * shape.query_heads;
    partial.splits = splits;
    const auto own = [&](auto** pointer, const char* sizes, std::initializer_list<long long> n) {
      take(cache, &bytes.cache, pointer, sizes, n);
    };
    own(&keys, "sequences * kv_heads * capacity * head_dim", {cached, shape.head_dim});
    own(&values, "sequences * kv_heads * capacity * value_dim", {cached, shape.value_size()});
    own(&scores, "sequences * kv_heads * capacity", {cached});
    own(&positions, "sequences * kv_heads * capacity", {cached});
    own(&kept, "sequences * kv_heads * capacity", {cached});
    own(&states, "sequences", {sequences});
    own(&frequencies, "rope.dims", {dims / 2});
    own(&of_heads, "query_heads", {2, shape.query_heads});
    const auto room = [&](auto** pointer, const char* sizes, std::initializer_list<long long> n) {
      take(workspace, &bytes.workspace, pointer, sizes, n);
    };
    room(&importance, "sequences * kv_heads * capacity", {2, cached});
    room(&picks, "sequences * kv_heads * capacity", {2, cached});
    room(&diversity, "sequences * kv_heads * capacity", {needs.keys ? cached : 0});
    room(&norms, "sequences * kv_heads * capacity", {needs.keys ? cached : 0});
    room(&angles, "sequences * max_chunk * rope.dims", {sequences, shape.max_chunk, dims});
    room(&lse, "sequences * query_heads * max_chunk", {needs.attention ? query_heads : 0, shape.max_chunk});
    const int parts = few(shape) * partial.splits, most = parts < shape.max_chunk ? shape.max_chunk : parts;
    room(&partial.out, "sequences * query_heads * splits * value_dim",
         {partial.splits == 1 ? 0 : query_heads, parts, shape.value_size()});
    room(&partial.top, "sequences * query_heads * max_chunk", {query_heads, most});
    room(&partial.sum, "sequences * query_heads * max_chunk", {query_heads, most});
    room(&partial.logits, "sequences * query_heads * kept_logits * capacity",
         {needs.attention ? query_heads : 0, batch.kept_logits, capacity});
  }

  /// Most tokens of a call that is split over rows, with calls of max_chunk.
  static int few(const Shape& shape) { return shape.max_chunk < few_tokens ? shape.max_chunk : few_tokens; }

 private:
  template <class V>
  static void take(void* base, std::size_t* used, V** pointer, const char* sizes, std::initializer_list<long long> of) {
    const std::size_t n = count_of<V>(sizes, of);
    *pointer = n == 0 || base == nullptr ? nullptr : reinterpret_cast<V*>(static_cast<char*>(base) + *used);
    *used += (n * sizeof(V) + 255) / 256 * 256;
  }
};

/// Errors: what a device's cache of such rows does not allow; the shape has been checked as the host's.
template <class T>
void check(const Shape& shape, const Batch& batch) {
  if (shape.values_in_keys) fail("values_in_keys", "true", "false: the device stores values apart");
  const auto check_row = [](const char* field, int dim) {
    require_range(field, dim, Pack<T>::size, 256);
    if (dim % Pack<T>::size != 0) fail(field, dim, "whole packs of 16 bytes");
  };
  check_row("head_dim", shape.head_dim);
  check_row("value_dim", shape.value_size());
  // Queries times splits are blocks of a launch.
  require_range("max_chunk * query_heads / kv_heads", 1LL * shape.max_chunk * shape.group(), 1, 1 << 20);
  require_range("sequences", batch.sequences, 1, 65535);
  require_range("kv_heads", shape.kv_heads, 1, 65535);
  require_range("kept_logits", batch.kept_logits, 0, Buffers<T>::few(shape));
  require_range("splits", batch.splits, 0, 1024);
}

}  // namespace cuda
}  // namespace buzz
