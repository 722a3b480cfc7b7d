#pragma once

#include <cstdint>
#include <cstring>

#include "buzz/cuda/types.cuh"

namespace buzz {
namespace cuda {

/// Fragments of tensor cores' products, as the PTX ISA has them (mma.m16n8k16, which needs sm_80): what the lanes of a
/// warp hold of its matrices. Lane 4 g + i holds, two values of 16 bits in a word, the first of them low,
///
///     of a [16, 16]  (g, 2 i) and the one after it, (g + 8, 2 i) ..., (g, 2 i + 8) ..., (g + 8, 2 i + 8) ...: a Bits
///     of b [16, 8]   (2 i, g) and the one below it, (2 i + 8, g) ...: a Pair
///     of c [16, 8]   (g, 2 i), (g, 2 i + 1), (g + 8, 2 i), (g + 8, 2 i + 1), as floats
struct Pair {
  std::uint32_t words[2];  ///< as above
};

/// A thread is lane 4 * group_of(t) + member_of(t) of its warp.
/// @{
BUZZ_HOST_DEVICE constexpr int group_of(int t) { return t % 32 / 4; }
BUZZ_HOST_DEVICE constexpr int member_of(int t) { return t % 4; }
/// @}
/// Value x of word h of a lane's b is of this row.
BUZZ_HOST_DEVICE constexpr int row_of(int t, int h, int x) { return 8 * h + 2 * member_of(t) + x; }

/// Leaves x as value `which`, 0 or 1, of a word of a fragment.
template <class T>
BUZZ_DEVICE inline void place(Bits& fragment, int word, int which, T x) {
  static_assert(sizeof x == 2, "two in a word");
  memcpy(reinterpret_cast<char*>(&fragment.words[word]) + which * 2, &x, 2);
}

/// Two floats as T in a word, the first low, rounded to nearest even.
template <class T>
struct Join {
  /// They are not past T's largest.
  static BUZZ_DEVICE std::uint32_t floats(float low, float high) {
    const T values[] = {FromFloat<T>::convert(low), FromFloat<T>::convert(high)};
    std::uint32_t word;
    memcpy(&word, values, sizeof word);
    return word;
  }
};

/// The low values of two words, or the high ones.
/// @{
BUZZ_DEVICE inline std::uint32_t lows(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, 0x5410);
#else
  return (a & 0xffffu) | b << 16;
#endif
}
BUZZ_DEVICE inline std::uint32_t highs(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, 0x7632);
#else
  return a >> 16 | (b & 0xffff0000u);
#endif
}
/// @}

#if defined(__CUDACC__)
/// As Join.
template <>
struct Join<__half> {
  /// As Join's.
  static __device__ std::uint32_t floats(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
};
/// As Join.
template <>
struct Join<__nv_bfloat16> {
  /// As Join's.
  static __device__ std::uint32_t floats(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
};

/// c += a * b of a warp's fragments, sums in float; by type.
template <class T>
struct Mma;
/// As Mma.
template <>
struct Mma<__half> {
  /// To be called by all of a warp together.
  static __device__ void add(const Bits& a, const Pair& b, float (&c)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]), "r"(b.words[1]));
  }
};
/// As Mma.
template <>
struct Mma<__nv_bfloat16> {
  /// To be called by all of a warp together.
  static __device__ void add(const Bits& a, const Pair& b, float (&c)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]), "r"(b.words[1]));
  }
};
#endif

}  // namespace cuda
}  // namespace buzz
