#pragma once

#include <cstdint>
#include <cstring>

#include "buzz/config.h"

namespace buzz {

/// What a number is, by its bits: under -ffast-math compilers take every number to be finite, and leave out what
/// compares with NaN or asks std::isfinite(). Arguments are references, so that what is asked are bits in memory.
/// @{

/// The bits of a number, of which the compiler then knows nothing.
BUZZ_HOST_DEVICE inline std::uint32_t bits_of(const float& x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  BUZZ_FORGET(bits);
  return bits;
}
BUZZ_HOST_DEVICE inline std::uint64_t bits_of(const double& x) {  ///< the same
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  BUZZ_FORGET(bits);
  return bits;
}

/// Neither NaN nor infinite?
BUZZ_HOST_DEVICE inline bool is_finite(const float& x) { return (~bits_of(x) & 0x7F800000u) != 0; }
/// The same.
BUZZ_HOST_DEVICE inline bool is_finite(const double& x) { return (~bits_of(x) & 0x7FF0000000000000u) != 0; }

/// 0 of either sign? NaN is not, as where compilers compare without its rules.
BUZZ_HOST_DEVICE inline bool is_zero(const double& x) { return bits_of(x) << 1 == 0; }

#if BUZZ_FINITE_MATH
/// NaN?
BUZZ_HOST_DEVICE constexpr bool is_nan(const float& x) {
  return !__builtin_is_constant_evaluated() && (bits_of(x) & 0x7FFFFFFFu) > 0x7F800000u;
}
/// The same.
BUZZ_HOST_DEVICE constexpr bool is_nan(const double& x) {
  return !__builtin_is_constant_evaluated() && (bits_of(x) & 0x7FFFFFFFFFFFFFFFu) > 0x7FF0000000000000u;
}
#else
/// NaN?
BUZZ_HOST_DEVICE constexpr bool is_nan(const float& x) { return x != x; }
BUZZ_HOST_DEVICE constexpr bool is_nan(const double& x) { return x != x; }  ///< the same
#endif

/// Makes a number NaN; a constant NaN is one that compilers may replace.
BUZZ_HOST_DEVICE inline void put_nan(float* x) {
  std::uint32_t bits = 0x7FC00000u;
  BUZZ_FORGET(bits);
  std::memcpy(x, &bits, sizeof bits);
}
/// The same.
BUZZ_HOST_DEVICE inline void put_nan(double* x) {
  std::uint64_t bits = 0x7FF8000000000000u;
  BUZZ_FORGET(bits);
  std::memcpy(x, &bits, sizeof bits);
}
/// @}

/// to[i] += from[i] for i in [0, count), if counts(from[i]). A constant trip count is vectorised at -O2 too, where
/// nothing is written that may be read.
template <class Counts>
inline void add_where(const float* from, int count, float* __restrict to, Counts counts) {
  constexpr int block = 32;  // past 16, which gcc unrolls at -O3 before it makes vector code
  int i = 0;
  for (; count - i >= block; i += block)
    for (int j = i; j < i + block; ++j) to[j] += counts(from[j]) ? from[j] : 0.f;
  for (; i < count; ++i) to[i] += counts(from[i]) ? from[i] : 0.f;
}
/// Adds all of it.
inline void add_all(const float* from, int count, float* to) {
  add_where(from, count, to, [](const float&) { return true; });
}
/// Adds what is finite.
inline void add_finite(const float* from, int count, float* to) {
  add_where(from, count, to, [](const float& x) { return is_finite(x); });
}

/// The bits of 2^64.
constexpr std::uint32_t most_attention = 0x5F800000u;
/// Can it be an attention probability, or a sum of them? From 0 to 2^64, so that no sum of such a float overflows.
BUZZ_HOST_DEVICE inline bool is_attention(const float& x) {
  const std::uint32_t bits = bits_of(x);
  return bits <= most_attention || bits == 0x80000000u;
}
/// Adds what is_attention().
inline void add_attention(const float* from, int count, float* to) {
  add_where(from, count, to, [](const float& x) { return is_attention(x); });
}

/// x rounded to double, which under no compiler flag is merged with what is computed of it: for sums whose rounding is
/// the point. A function that uses it begins with BUZZ_AS_WRITTEN.
BUZZ_HOST_DEVICE inline double as_written(double x) {
#if !BUZZ_EXCESS_PRECISION && !BUZZ_REASSOCIATES
  return x;
#elif !BUZZ_EXCESS_PRECISION && defined(__GNUC__) && defined(__SSE2__)
  __asm__ volatile("" : "+x"(x));  // not __builtin_assoc_barrier(), which gcc loses in vector code
  return x;
#elif !BUZZ_EXCESS_PRECISION && defined(__GNUC__) && defined(__aarch64__)
  __asm__ volatile("" : "+w"(x));
  return x;
#else
  volatile double rounded = x;
  return rounded;
#endif
}

}  // namespace buzz
