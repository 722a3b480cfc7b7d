#pragma once

#include <algorithm>
#include <type_traits>

#include "buzz/cuda/attend.cuh"
#include "buzz/cuda/attend_mma.cuh"
#include "buzz/cuda/merge.cuh"
#include "buzz/cuda/observe.cuh"

namespace buzz {
namespace cuda {

/// Calls f with the packs of 16 bytes that each of 16 lanes reads of a row of `dim` elements, up to 256, as a
/// compile-time constant. Returns what f does.
template <class T, class F>
auto with_packs(int dim, F&& f) {
  const int packs = (dim - 1) / (16 * Pack<T>::size) + 1;
  if (packs == 1) return f(std::integral_constant<int, 1>());
  if constexpr (sizeof(T) == 4)
    if (packs > 2) return f(std::integral_constant<int, 4>());
  return f(std::integral_constant<int, 2>());
}

/// The same with `dim` rounded up to 64, 128 or 256.
template <class F>
auto with_dims(int dim, F&& f) {
  if (dim <= 64) return f(std::integral_constant<int, 64>());
  if (dim <= 128) return f(std::integral_constant<int, 128>());
  return f(std::integral_constant<int, 256>());
}

/// Calls f with the flag as a compile-time constant. Returns what f does.
template <class F>
auto with_flag(bool flag, F&& f) {
  return flag ? f(std::true_type()) : f(std::false_type());
}

/// Attention over the cached rows; with partial.logits the probabilities are added to the scores, and with lse, [count,
/// tokens, query_heads], the log-sum-exps are left there. q, out: [count, tokens, query_heads, head_dim or value_dim].
/// Errors: what the launches give. O(tokens * query_heads * rows * head_dim).
template <class Launcher, class T>
typename Launcher::Result attend(const StepOf<T>& step, Tensor<const T> q, Tensor<T> out, const Partial& partial,
                                 float* lse, typename Launcher::Stream stream) {
  const int count = step.queries.count();
  const auto launch = [&](const auto& kernel, int queries, auto modified) {
    const Grid grid{partial.splits * ((count - 1) / queries + 1), step.kv_heads, step.count};
    const typename Launcher::Result result = Launcher::launch(kernel, grid, stream);
    if (result != Launcher::success) return result;
    const Merge<T, decltype(modified)::value> merge{step, out, lse, partial};
    return Launcher::launch(merge, {merge.output_blocks() + merge.sum_blocks(), step.kv_heads, step.count}, stream);
  };
  const int widest = (std::max)(step.head_dim, step.value_dim());
  if constexpr (sizeof(T) == 2) {
    return with_dims(widest, [&](auto size) {
      constexpr int dims = size();
      const bool whole = step.head_dim == dims && step.value_dim() == dims;
      return with_flag(step.modifiers.any() || !whole, [&](auto flag) {
        const auto with = [&](auto queries, auto modified) {
          return launch(AttendMma<T, dims, queries(), modified()>{{step, q, out, lse, partial}}, queries(), modified);
        };
        if (count <= 8) return with(std::integral_constant<int, 8>(), flag);
        return with(std::integral_constant < int, dims <= 128 ? 16 : 8 > (), flag);
      });
    });
  } else {
    return with_packs<T>(widest, [&](auto size) {
      constexpr int packs = size();
      return with_flag(step.modifiers.any() || step.value_dim() != step.head_dim, [&](auto flag) {
        const auto with = [&](auto queries, auto modified) {
          return launch(Attend<T, packs, queries(), modified()>{{step, q, out, lse, partial}}, queries(), modified);
        };
        constexpr int most = packs * Pack<T>::size > 8 ? 4 : 8;  // queries, so that a thread's registers suffice
        if (count == 1) return with(std::integral_constant<int, 1>(), flag);
        if (count <= 4) return with(std::integral_constant<int, 4>(), flag);
        return with(std::integral_constant<int, most>(), flag);
      });
    });
  }
}

/// Adds the probabilities to the scores, from the keys and lse, [count, tokens, query_heads]; q as there. Errors: what
/// the launch gives. O(tokens * query_heads * rows * head_dim).
template <class Launcher, class T>
typename Launcher::Result observe(const StepOf<T>& step, Tensor<const T> q, const float* lse,
                                  typename Launcher::Stream stream) {
  return with_flag(step.modifiers.any(), [&](auto flag) {
    return with_packs<T>(step.head_dim, [&](auto packs) {
      const Observe<T, packs(), decltype(flag)::value> kernel{step, q, lse};
      const int blocks = (step.capacity - 1) / kernel.rows_at_once + 1;
      return Launcher::launch(kernel, {blocks, step.kv_heads, step.count}, stream);
    });
  });
}

/// Adds given probabilities, [count, query_heads, tokens, rows]. Errors: what the launch gives. O(tokens * query_heads
/// * rows).
template <class Launcher>
typename Launcher::Result observe(const Step& step, Tensor<const float> probabilities,
                                  typename Launcher::Stream stream) {
  const ObserveGiven kernel{step, probabilities};
  return Launcher::launch(kernel, {(step.capacity - 1) / kernel.threads + 1, step.kv_heads, step.count}, stream);
}

}  // namespace cuda
}  // namespace buzz
