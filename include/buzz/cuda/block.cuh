#pragma once

#include "buzz/cuda/mma.cuh"

#if defined(__CUDACC__)
#include <cuda_runtime.h>

#include <atomic>
#endif

namespace buzz {

/// The cache on a GPU; include/buzz/README.md, floor 5. BuzzCache is what to use, the kernels are what it is made of.
///
/// A kernel is a struct of its arguments with `static constexpr int threads`, a struct Shared (its shared memory) and
///
///     template <class Block> BUZZ_DEVICE void operator()(Block& block, Shared& shared) const;
///
/// whose body is a sequence of phases. On the device a Block is this thread's part of the block; the tests have another
/// (tests/cuda_emulation.h), which runs a phase for all threads, in any order, before the next begins: so the same body
/// runs on the host. What a thread knows from one phase to the next is in a Private. Pointers and tensors are of device
/// memory; a kernel checks none of its arguments.
namespace cuda {

/// How many blocks a kernel is launched with.
struct Grid {
  int x = 1;  ///< along the first axis
  int y = 1;  ///< along the second
  int z = 1;  ///< along the third
};

#if defined(__CUDACC__)

/// This thread's part of a block on the device.
class Block {
 public:
  /// A value of each thread's own, in its registers; threads take it by their index.
  template <class V>
  class Private {
   public:
    explicit __device__ Private(const Block&) {}      ///< not initialised
    __device__ V& operator[](int) { return value_; }  ///< this thread's, by its own index

   private:
    V value_;
  };

  /// Which block of the grid it is.
  /// @{
  __device__ int x() const { return static_cast<int>(blockIdx.x); }
  __device__ int y() const { return static_cast<int>(blockIdx.y); }
  __device__ int z() const { return static_cast<int>(blockIdx.z); }
  /// @}

  /// Calls f(thread) for each thread; what it writes is seen by all in the next phase.
  template <class F>
  __device__ void phase(F&& f) {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  /// The same where no thread of the block reads what another has written.
  template <class F>
  __device__ void alone(F&& f) {
    f(static_cast<int>(threadIdx.x));
  }
  /// Gives each of a thread's values the sum over the `lanes` (a power of two up to 32) threads around it.
  template <int lanes, class V, class W, class X, int n>
  __device__ void add_lanes(Private<V>& threads, X (W::*values)[n]) {
    X(&x)[n] = threads[0].*values;
    BUZZ_UNROLL
    for (int i = 0; i < n; ++i) BUZZ_UNROLL
    for (int offset = lanes / 2; offset > 0; offset /= 2) x[i] += __shfl_xor_sync(0xffffffffu, x[i], offset);
  }
  /// Each thread's first `count` values become those of the thread `offset` (a power of two up to 16) from it.
  template <int count, int offset, class V, class W, class X, int n>
  __device__ void swap(Private<V>& threads, X (W::*values)[n]) {
    X(&x)[n] = threads[0].*values;
    BUZZ_UNROLL
    for (int i = 0; i < count; ++i) x[i] = __shfl_xor_sync(0xffffffffu, x[i], offset);
  }
  /// The inverse of deal_sums()' dealing: all of `lanes` threads have the n values of which each had its own.
  template <int lanes, class V, class W, class X, int n>
  __device__ void share(Private<V>& threads, X (W::*values)[n]) {
    constexpr int own = n > lanes ? n / lanes : 1;
    X(&x)[n] = threads[0].*values;
    X its[own];
    BUZZ_UNROLL
    for (int i = 0; i < own; ++i) its[i] = x[i];
    BUZZ_UNROLL
    for (int i = 0; i < n; ++i) x[i] = __shfl_sync(0xffffffffu, its[i % own], i * lanes / n, lanes);
  }
  /// Each thread's to[k] becomes from[k * n / m] of the lane lane(thread, k), 0 to 31, of its warp.
  template <class V, class W, class U, class X, int n, int m, class F>
  __device__ void pick(Private<V>& threads, X (W::*from)[n], X (U::*to)[m], F&& lane) {
    V& its = threads[0];
    BUZZ_UNROLL
    for (int k = 0; k < m; ++k)
      (its.*to)[k] = __shfl_sync(0xffffffffu, (its.*from)[k * n / m], lane(static_cast<int>(threadIdx.x), k));
  }
  /// c += a * b, of a warp's fragments of matrices, as mma.cuh has them: a(thread) is a Bits, b(thread) a Pair,
  /// c(thread) a float (&)[4].
  template <class T, class A, class B, class C>
  __device__ void multiply(A&& a, B&& b, C&& c) {
    const int t = static_cast<int>(threadIdx.x);
    Mma<T>::add(a(t), b(t), c(t));
  }
  /// Begins to copy 16 bytes of device memory to shared memory, both aligned to them.
  __device__ void copy(Bits& to, const void* from) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(&to))),
        "l"(__cvta_generic_to_global(from))
        : "memory");
  }
  /// Waits for all that the block's threads have begun to copy; all see it in the next phase.
  __device__ void arrive() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }
  /// Is f(thread) true of any thread? All get the answer.
  template <class F>
  __device__ bool any(F&& f) {
    return __syncthreads_or(f(static_cast<int>(threadIdx.x))) != 0;
  }
  /// Adds to a counter that several threads of a phase add to.
  __device__ void add(int* counter, int n) { atomicAdd(counter, n); }
};

/// A Kernel as CUDA has it, for Launcher. From sm_90 on its blocks may come to their multiprocessors before the launch
/// before it has ended (programmatic dependent launch): before all else they wait until it has, and so all before it,
/// and what they wrote is seen; then the next launch may come, and waits in its turn.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run(Kernel kernel) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  __shared__ typename Kernel::Shared shared;
  Block block;
  kernel(block, shared);
}

/// Launches kernels on a stream, and nothing else: no allocation, no synchronisation.
struct Launcher {
  using Stream = cudaStream_t;                              ///< where launches wait for each other
  using Result = cudaError_t;                               ///< of a launch
  static constexpr Result success = cudaSuccess;            ///< all is well
  static constexpr Result invalid = cudaErrorInvalidValue;  ///< an argument was refused

  /// Launches grid.x * grid.y * grid.z blocks; none of them is no error. Returns what this launch itself says: an
  /// earlier call's error stays where cudaGetLastError() finds it. What goes wrong while the kernel runs is for the
  /// stream's next synchronisation.
  template <class Kernel>
  static Result launch(const Kernel& kernel, Grid grid, Stream stream) {
    if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return success;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
    config.blockDim = dim3(Kernel::threads);
    config.stream = stream;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &early;
    config.numAttrs = waits<Kernel>() ? 1 : 0;
    return cudaLaunchKernelEx(&config, run<Kernel>, kernel);
  }

  /// How many blocks of a kernel the current device holds at once; 0 where that can not be asked, as without a device.
  template <class Kernel>
  static int most_at_once() {
    int device = 0, multiprocessors = 0, blocks = 0;
    const bool known =
        cudaGetDevice(&device) == success &&
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) == success &&
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, run<Kernel>, Kernel::threads, 0) == success;
    return known ? multiprocessors * blocks : 0;
  }

 private:
  /// Does the code of a kernel that the current device runs wait for earlier launches? It is code for sm_90 on then:
  /// what a device has of older code would not. Asked once a device. Graphs take such launches from CUDA 12.3 on.
  template <class Kernel>
  static bool waits() {
    constexpr int most = 64;  // devices of which an answer is kept
    static std::atomic<signed char> answers[most];
    int device = 0;
    if (CUDART_VERSION < 12030 || cudaGetDevice(&device) != success || device >= most) return false;
    if (answers[device] == 0) {
      cudaFuncAttributes of = {};
      if (cudaFuncGetAttributes(&of, run<Kernel>) != success) return false;
      answers[device] = of.ptxVersion >= 90 ? 1 : -1;
    }
    return answers[device] > 0;
  }
};

#endif

/// Adds up each of a thread's first `count` values over the 2 * offset threads around it, and deals the sums out, which
/// takes fewer steps than add_lanes(): values[i] of lane l becomes sum l * count / lanes + i, i < max(1, count /
/// lanes). `sent` is room. count, offset: powers of two.
template <int count, int offset, class Block, class Private, class V, class X, int n>
BUZZ_DEVICE void deal_sums(Block& block, Private& threads, X (V::*values)[n], X (V::*sent)[n]) {
  constexpr int half = count > 1 ? count / 2 : 1;
  block.alone([&](int t) {
    X(&x)[n] = threads[t].*values;
    X(&y)[n] = threads[t].*sent;
    BUZZ_UNROLL
    for (int i = 0; i < half; ++i) {
      const X low = x[i], high = x[i + count - half];
      x[i] = (t & offset) != 0 ? high : low;
      y[i] = (t & offset) != 0 ? low : high;
    }
  });
  block.template swap<half, offset>(threads, sent);
  block.alone([&](int t) {
    BUZZ_UNROLL
    for (int i = 0; i < half; ++i) (threads[t].*values)[i] += (threads[t].*sent)[i];
  });
  if constexpr (offset > 1) deal_sums<half, offset / 2>(block, threads, values, sent);
}

/// Each of a thread's values becomes f of its own and of those of the threads whose numbers differ from its in the bits
/// from `offset` to below `end`, both powers of two; f(x, y) is f(y, x). `sent` is room.
template <int offset, int end, class Block, class Private, class V, class X, int n, int m, class F>
BUZZ_DEVICE void fold_lanes(Block& block, Private& threads, X (V::*values)[n], X (V::*sent)[m], F f) {
  if constexpr (offset < end) {
    block.alone([&](int t) {
      BUZZ_UNROLL
      for (int i = 0; i < n; ++i) (threads[t].*sent)[i] = (threads[t].*values)[i];
    });
    block.template swap<n, offset>(threads, sent);
    block.alone([&](int t) {
      BUZZ_UNROLL
      for (int i = 0; i < n; ++i) (threads[t].*values)[i] = f((threads[t].*values)[i], (threads[t].*sent)[i]);
    });
    fold_lanes<offset * 2, end>(block, threads, values, sent, f);
  }
}

/// Each thread's number becomes the sum of those of the threads before it; returns the sum of all, to all. `a` and `b`
/// are [threads] of shared memory. The threads' numbers are in a; the result is in a.
template <int threads, class Block>
BUZZ_DEVICE int scan(Block& block, int* a, int* b) {
  for (int distance = 1; distance < threads; distance *= 2) {
    block.phase([&](int t) { b[t] = t < distance ? a[t] : a[t] + a[t - distance]; });
    block.phase([&](int t) { a[t] = b[t]; });
  }
  block.phase([&](int t) { b[t] = t == 0 ? 0 : a[t - 1]; });
  const int total = a[threads - 1];
  block.phase([&](int) {});  // all have read the total
  block.phase([&](int t) { a[t] = b[t]; });
  return total;
}

}  // namespace cuda
}  // namespace buzz
