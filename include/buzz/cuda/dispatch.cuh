#pragma once

#include <type_traits>

#include "buzz/cuda/merge.cuh"
#include "buzz/cuda/observe.cuh"

namespace buzz {
namespace cuda {

/// What a call's queries need on the device; the pointers are of the call's first sequence.
template <class T>
struct Work {
  Tensor<const T> keys;    ///< [count, kv_heads, capacity, head_dim]
  Tensor<const T> values;  ///< the same
  double* scores;          ///< [count, kv_heads, capacity]
  const float* angles;     ///< [count, max_chunk, turning.dims], Append's
  const State* states;     ///< [count]
  Turning turning;         ///< of the queries
  LogitScale scale;        ///< of the logits
  Fold fold;               ///< what a probability does to a score
  Queries queries;         ///< of one KV head
  /// Sizes of the above; count: sequences.
  /// @{
  int kv_heads, head_dim, capacity, max_chunk, count;
  /// @}
};

/// Calls f with the packs of 16 bytes that each of 16 lanes reads of a row, as a compile-time constant; head_dim up to
/// 256. Returns what f does.
template <class T, class F>
auto with_packs(int head_dim, F&& f) {
  const int packs = (head_dim - 1) / (16 * Pack<T>::size) + 1;
  if (packs == 1) return f(std::integral_constant<int, 1>());
  if constexpr (sizeof(T) == 4)
    if (packs > 2) return f(std::integral_constant<int, 4>());
  return f(std::integral_constant<int, 2>());
}

/// Attention over the cached rows; with partial.logits the probabilities are added to the scores, and with lse, [count,
/// tokens, query_heads], the log-sum-exps are left there. q, out: [count, tokens, query_heads, head_dim]. Errors: what
/// the launches give. O(tokens * query_heads * rows * head_dim).
template <class Launcher, class T>
typename Launcher::Result attend(const Work<T>& w, Tensor<const T> q, Tensor<T> out, const Partial& partial, float* lse,
                                 typename Launcher::Stream stream) {
  const auto launch = [&](auto packs, auto queries) {
    const Attend<T, packs(), queries()> kernel{q,         w.keys,     w.values,   out,        lse,
                                               partial,   w.angles,   w.states,   w.turning,  w.scale,
                                               w.queries, w.kv_heads, w.head_dim, w.capacity, w.max_chunk};
    const int tiles = (w.queries.count() - 1) / queries() + 1;
    return Launcher::launch(kernel, {partial.splits * tiles, w.kv_heads, w.count}, stream);
  };
  const typename Launcher::Result result = with_packs<T>(w.head_dim, [&](auto packs) {
    constexpr int most = packs() * Pack<T>::size > 8 ? 4 : 8;  // queries, so that a thread's registers suffice
    if (w.queries.count() == 1) return launch(packs, std::integral_constant<int, 1>());
    if (w.queries.count() <= 4) return launch(packs, std::integral_constant<int, 4>());
    return launch(packs, std::integral_constant<int, most>());
  });
  if (result != Launcher::success) return result;
  const Merge<T> merge{out, lse, partial, w.scores, w.states, w.fold, w.queries, w.kv_heads, w.head_dim, w.capacity};
  return Launcher::launch(merge, {merge.output_blocks() + merge.mass_blocks(), w.kv_heads, w.count}, stream);
}

/// Adds the probabilities to the scores, from the keys and lse, [count, tokens, query_heads]; q as there. Errors: what
/// the launch gives. O(tokens * query_heads * rows * head_dim).
template <class Launcher, class T>
typename Launcher::Result observe(const Work<T>& w, Tensor<const T> q, const float* lse,
                                  typename Launcher::Stream stream) {
  return with_packs<T>(w.head_dim, [&](auto packs) {
    const Observe<T, packs()> kernel{q,       w.keys, lse,       w.scores,   w.angles,   w.states,   w.turning,
                                     w.scale, w.fold, w.queries, w.kv_heads, w.head_dim, w.capacity, w.max_chunk};
    return Launcher::launch(kernel, {(w.capacity - 1) / kernel.rows_at_once + 1, w.kv_heads, w.count}, stream);
  });
}

/// Adds given probabilities, [count, query_heads, tokens, rows]. Errors: what the launch gives. O(tokens * query_heads
/// * rows).
template <class Launcher, class T>
typename Launcher::Result observe(const Work<T>& w, Tensor<const float> probabilities,
                                  typename Launcher::Stream stream) {
  const ObserveGiven kernel{probabilities, w.scores, w.states, w.fold, w.queries, w.kv_heads, w.capacity};
  return Launcher::launch(kernel, {(w.capacity - 1) / kernel.threads + 1, w.kv_heads, w.count}, stream);
}

}  // namespace cuda
}  // namespace buzz
