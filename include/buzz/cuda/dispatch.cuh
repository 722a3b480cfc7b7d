#pragma once

#include <algorithm>
#include <type_traits>

#include "buzz/cuda/attend.cuh"
#include "buzz/cuda/attend_many.cuh"
#include "buzz/cuda/attend_mma.cuh"
#include "buzz/cuda/merge.cuh"
#include "buzz/cuda/observe.cuh"
#include "buzz/shape.h"

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

/// Launches a kernel of attention, which takes `queries` query rows a block, and what comes after it; call: its
/// arguments.
template <class Launcher, class Kernel, class T, bool modified>
typename Launcher::Result attend_by(const Kernel& kernel, int queries, const AttentionKernel<T, modified>& call,
                                    typename Launcher::Stream stream) {
  const StepOf<T>& step = call.step;
  const int splits = call.partial.splits, tiles = (step.queries.count() - 1) / queries + 1;
  const typename Launcher::Result result =
      Launcher::launch(kernel, {splits * tiles, step.kv_heads, step.count}, stream);
  if (result != Launcher::success) return result;
  const Merge<T, modified> merge{step, call.out, call.lse, call.partial};
  return Launcher::launch(merge, {merge.output_blocks() + merge.sum_blocks(), step.kv_heads, step.count}, stream);
}

/// With the kernel for so many queries, of half and bfloat16.
template <class Launcher, int dims, class T, bool modified>
typename Launcher::Result attend_halves(const AttentionKernel<T, modified>& call, typename Launcher::Stream stream) {
  const int count = call.step.queries.count();
  if constexpr (dims <= 128) {  // so that a thread's registers suffice
    using Many = AttendMany<T, dims, modified>;
    if (count >= Many::queries && call.partial.splits == 1 && call.partial.logits == nullptr)
      return attend_by<Launcher>(Many{call}, Many::queries, call, stream);
    if (count > 8) return attend_by<Launcher>(AttendMma<T, dims, 16, modified>{call}, 16, call, stream);
  }
  return attend_by<Launcher>(AttendMma<T, dims, 8, modified>{call}, 8, call, stream);
}
/// Of floats.
template <class Launcher, int packs, class T, bool modified>
typename Launcher::Result attend_floats(const AttentionKernel<T, modified>& call, typename Launcher::Stream stream) {
  const int count = call.step.queries.count();
  if (count == 1) return attend_by<Launcher>(Attend<T, packs, 1, modified>{call}, 1, call, stream);
  if constexpr (packs <= 2)  // so that a thread's registers suffice
    if (count > 4) return attend_by<Launcher>(Attend<T, packs, 8, modified>{call}, 8, call, stream);
  return attend_by<Launcher>(Attend<T, packs, 4, modified>{call}, 4, call, stream);
}

/// Attention over the cached rows; with partial.logits the probabilities are added to the scores, and with lse, [count,
/// tokens, query_heads], the log-sum-exps are left there. q, out: [count, tokens, query_heads, head_dim or value_dim].
/// Errors: what the launches give. O(tokens * query_heads * rows * head_dim).
template <class Launcher, class T>
typename Launcher::Result attend(const StepOf<T>& step, Tensor<const T> q, Tensor<T> out, const Partial& partial,
                                 float* lse, typename Launcher::Stream stream) {
  const int widest = (std::max)(step.head_dim, step.value_dim());
  if constexpr (sizeof(T) == 2) {
    return with_dims(widest, [&](auto dims) {
      const bool whole = step.head_dim == dims() && step.value_dim() == dims();
      return with_flag(step.modifiers.any() || !whole, [&](auto modified) {
        const AttentionKernel<T, decltype(modified)::value> call{step, q, out, lse, partial};
        return attend_halves<Launcher, decltype(dims)::value>(call, stream);
      });
    });
  } else {
    return with_packs<T>(widest, [&](auto packs) {
      return with_flag(step.modifiers.any() || step.value_dim() != step.head_dim, [&](auto modified) {
        const AttentionKernel<T, decltype(modified)::value> call{step, q, out, lse, partial};
        return attend_floats<Launcher, decltype(packs)::value>(call, stream);
      });
    });
  }
}

/// In place of a launcher: notes how many blocks the first kernel would be launched with, and how many of it the
/// current device holds at once.
template <class Launcher>
struct Counted {
  /// What is noted.
  struct Blocks {
    long long all = 0;  ///< 0: nothing yet
    int at_once = 0;    ///< 0: there is no device to ask
  };
  using Stream = Blocks*;                  ///< where
  using Result = bool;                     ///< of no launch
  static constexpr Result success = true;  ///< always
  /// Launches nothing.
  template <class Kernel>
  static Result launch(const Kernel&, Grid grid, Stream blocks) {
    if (blocks->all == 0) *blocks = {1LL * grid.x * grid.y * grid.z, Launcher::template most_at_once<Kernel>()};
    return success;
  }
};

/// Into how many parts the rows of a call are split whose attention would be `blocks` blocks, on a device that holds
/// `at_once` of them: the fewest with which it is busy for 0.85 of the share of the time that the best number gives, as
/// in FlashAttention-2, and at most one for each 64 rows of capacity. 1 to 1024. O(capacity).
inline int splits_for(long long blocks, long long at_once, int capacity) {
  const int most = (std::min)((capacity - 1) / 64 + 1, 1024);
  const auto busy = [&](int splits) {
    const long long all = blocks * splits, waves = (all - 1) / at_once + 1;
    return static_cast<double>(all) / static_cast<double>(waves * at_once);
  };
  double best = 0;
  for (int splits = 1; splits <= most; ++splits) best = (std::max)(best, busy(splits));
  int splits = 1;
  while (busy(splits) < 0.85 * best) ++splits;
  return splits;
}
/// The same for a token of each sequence of a cache, on the current device; where there is none to ask, as of one that
/// holds 512.
template <class Launcher, class T>
int usual_splits(const Shape& shape, int sequences, int capacity) {
  StepOf<T> step;
  step.queries.group = shape.group();
  step.modifiers.value_dim = shape.value_size();
  step.kv_heads = shape.kv_heads;
  step.head_dim = shape.head_dim;
  step.capacity = capacity;
  step.count = sequences;
  Partial two;
  two.splits = 2;
  typename Counted<Launcher>::Blocks blocks;
  attend<Counted<Launcher>, T>(step, {}, {}, two, nullptr, &blocks);
  return splits_for(blocks.all / two.splits, blocks.at_once == 0 ? 512 : blocks.at_once, capacity);
}

/// Adds the probabilities to the scores, from the keys and lse, [count, tokens, query_heads]; q as there. Errors: what
/// the launch gives. O(tokens * query_heads * rows * head_dim).
template <class Launcher, class T>
typename Launcher::Result observe(const StepOf<T>& step, Tensor<const T> q, const float* lse,
                                  typename Launcher::Stream stream) {
  return with_flag(step.modifiers.any(), [&](auto flag) {
    return with_packs<T>(step.head_dim, [&](auto packs) {
      const Observe<T, packs(), decltype(flag)::value> kernel{step, q, lse};
      return Launcher::launch(kernel, {kernel.blocks(), step.kv_heads, step.count}, stream);
    });
  });
}

/// Adds given probabilities, [count, query_heads, tokens, rows]. Errors: what the launch gives. O(tokens * query_heads
/// * rows).
template <class Launcher>
typename Launcher::Result observe(const Step& step, Tensor<const float> probabilities,
                                  typename Launcher::Stream stream) {
  const ObserveGiven kernel{step, probabilities};
  return Launcher::launch(kernel, {kernel.blocks(), step.kv_heads, step.count}, stream);
}

}  // namespace cuda
}  // namespace buzz
