#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "buzz/finite.h"
#include "buzz/overlap.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace buzz {
namespace cuda {

/// Values are stored as T: float, __half or __nv_bfloat16, and computed with as float.
/// @{
template <class T>
BUZZ_DEVICE inline float to_float(T x) {
  return static_cast<float>(x);
}
#if defined(__CUDACC__)
// By name, since frameworks compile with the operators switched off.
template <>
__device__ inline float to_float(__half x) {
  return __half2float(x);
}
template <>
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
#endif
/// @}

/// from_float() by type, and T's largest number.
template <class T>
struct FromFloat {
  static BUZZ_DEVICE T convert(float x) { return static_cast<T>(x); }                    ///< rounds to nearest even
  static BUZZ_DEVICE float most() { return to_float((std::numeric_limits<T>::max)()); }  ///< as a float
};
#if defined(__CUDACC__)
/// As FromFloat.
template <>
struct FromFloat<__half> {
  static __device__ __half convert(float x) { return __float2half_rn(x); }  ///< rounds to nearest even
  static __device__ float most() { return 65504; }                          ///< as a float
};
/// As FromFloat.
template <>
struct FromFloat<__nv_bfloat16> {
  static __device__ __nv_bfloat16 convert(float x) { return __float2bfloat16_rn(x); }  ///< rounds to nearest even
  static __device__ float most() { return 0x1.FEp127f; }                               ///< as a float
};
#endif
/// x as T, rounded to nearest even; a number past T's largest becomes that, as buzz::convert_row() has it.
template <class T>
BUZZ_DEVICE inline T from_float(float x) {
  if constexpr (!std::is_same<T, float>::value) {
    const float most = FromFloat<T>::most();
    if (is_finite(x) && ::fabsf(x) > most) x = x < 0 ? -most : most;
  }
  return FromFloat<T>::convert(x);
}

/// 16 bytes, which the device loads and stores at once.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);  ///< how many
  T values[size];                              ///< side by side
};

/// 16 bytes of a row as they are stored: the device loads them at once, and takes them apart in registers.
struct alignas(16) Bits {
  std::uint32_t words[4];  ///< side by side
};
/// The 16 bytes at p, which is aligned to them, of device memory. Loads stay in the order in which they are written,
/// and before the shuffles after them: the compiler would put off those that are used later.
BUZZ_DEVICE inline Bits bits_at(const void* p) {
  Bits bits;
#if defined(__CUDA_ARCH__)
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.words[0]), "=r"(bits.words[1]), "=r"(bits.words[2]), "=r"(bits.words[3])
               : "l"(__cvta_generic_to_global(p)));
#else
  std::memcpy(&bits, p, sizeof bits);
#endif
  return bits;
}

/// The values in 16 bytes, as floats.
template <class T>
BUZZ_DEVICE inline void unpack(const Bits& bits, float (&x)[Pack<T>::size]) {
  T values[Pack<T>::size];
  memcpy(static_cast<void*>(values), &bits, sizeof values);
  BUZZ_UNROLL
  for (int i = 0; i < Pack<T>::size; ++i) x[i] = to_float(values[i]);
}

/// A tensor on the device that somebody else owns: [sequences, outer, inner, dim], the last dimension side by
/// side, the strides in elements. Inputs and outputs are [sequences, tokens, heads, dim], cached rows [sequences,
/// kv_heads, rows, dim], dim being head_dim, of values and outputs value_dim.
template <class T>
struct Tensor {
  T* data = nullptr;       ///< the value at [0, 0, 0, 0]
  long long sequence = 0;  ///< stride of the first dimension
  long long outer = 0;     ///< of the second
  long long inner = 0;     ///< of the third

  /// The values at [s, i, j]. Not checked.
  BUZZ_HOST_DEVICE T* row(int s, int i, int j) const { return data + s * sequence + i * outer + j * inner; }
  /// The same memory, to read.
  template <class U, class = std::enable_if_t<std::is_same<U, T>::value>>
  operator Tensor<const U>() const {  // NOLINT: to read is less than to write
    return {data, sequence, outer, inner};
  }
};

/// Is a tensor [sequences, outer, inner, dim], each >= 1, what a View has to be: not null, aligned to T, without
/// negative strides; and, where it can be written to, with nothing in two places? What is only read may have strides of
/// 0. O(1).
template <class T>
bool is_view(const Tensor<T>& tensor, int sequences, int outer, int inner, int dim) {
  const long long size[] = {sequences, outer, inner}, stride[] = {tensor.sequence, tensor.outer, tensor.inner};
  for (int i = 0; i < 3; ++i)
    if (size[i] > 1 && stride[i] < 0) return false;
  if (tensor.data == nullptr || reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(T) != 0) return false;
  return std::is_const<T>::value || misfit(size, stride, dim).axis < 0;
}

/// The bytes of a tensor [sequences, outer, inner, dim].
template <class T>
Footprint footprint(const Tensor<T>& tensor, int sequences, int outer, int inner, int dim) {
  constexpr long long bytes = sizeof(T);
  return {reinterpret_cast<std::uintptr_t>(tensor.data),
          {sequences, outer, inner},
          {tensor.sequence * bytes, tensor.outer * bytes, tensor.inner * bytes},
          dim * bytes};
}

/// A tensor without gaps: data is [sequences, outer, inner, dim] on the device. Not checked.
template <class T>
Tensor<T> dense(T* data, int outer, int inner, int dim) {
  const long long row = dim, rows = inner * row;
  return {data, outer * rows, rows, row};
}

}  // namespace cuda
}  // namespace buzz
