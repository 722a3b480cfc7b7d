#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "buzz/config.h"
#include "buzz/eigen.h"

namespace buzz {

/// Stored values as packets of floats: Eigen's packets (SSE, AVX, AVX-512, NEON, or plain floats), and the loads that
/// Eigen 3.4 lacks or does one value at a time.
namespace kernels {
/// Each instruction set's own: see eigen.h.
inline namespace BUZZ_ISA {

// Lambdas that index arrays of packets have to be inlined, or the arrays live in memory and every step stores them; gcc
// decides otherwise now and then.
#if defined(__GNUC__)
#define BUZZ_INLINED __attribute__((always_inline))
#else
#define BUZZ_INLINED
#endif

/// f(0), f(1), ... with the indices as compile-time arguments.
template <class F, int... Is>
EIGEN_ALWAYS_INLINE void unroll(F&& f, std::integer_sequence<int, Is...>) {
  (f(std::integral_constant<int, Is>()), ...);
}
/// f(0), ..., f(N - 1) with compile-time arguments, so that arrays indexed by them live in registers.
template <int N, class F>
EIGEN_ALWAYS_INLINE void unroll(F&& f) {
  unroll(f, std::make_integer_sequence<int, N>());
}

using Packet = Eigen::internal::packet_traits<float>::type;               ///< the widest that there is
constexpr int packet_size = Eigen::internal::packet_traits<float>::size;  ///< floats of a packet

/// Can the processor turn a packet of T into one of floats in registers? Where not, rows go through convert().
template <class T>
constexpr bool loads_packets = false;
template <>
inline constexpr bool loads_packets<float> = true;  ///< always

/// packet_size values as floats.
inline Packet load(const float* from) { return Eigen::internal::ploadu<Packet>(from); }

#if defined(EIGEN_VECTORIZE_AVX512)
template <>
inline constexpr bool loads_packets<Eigen::half> = true;
template <>
inline constexpr bool loads_packets<Eigen::bfloat16> = true;
template <>
inline constexpr bool loads_packets<std::int8_t> = true;
inline Packet load(const Eigen::half* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline Packet load(const Eigen::bfloat16* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Packet load(const std::int8_t* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
#elif defined(EIGEN_VECTORIZE_AVX2)
template <>
inline constexpr bool loads_packets<Eigen::bfloat16> = true;
template <>
inline constexpr bool loads_packets<std::int8_t> = true;
inline Packet load(const Eigen::bfloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Packet load(const std::int8_t* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}
#if defined(__F16C__)
template <>
inline constexpr bool loads_packets<Eigen::half> = true;
inline Packet load(const Eigen::half* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
#endif
#endif

/// The same in double precision, half as many.
using DoublePacket = Eigen::internal::packet_traits<double>::type;
constexpr int double_packet_size = Eigen::internal::packet_traits<double>::size;  ///< doubles of a packet

/// double_packet_size floats as doubles.
inline DoublePacket load_doubles(const float* from) {
#if defined(EIGEN_VECTORIZE_AVX512)
  return _mm512_cvtps_pd(_mm256_loadu_ps(from));
#elif defined(EIGEN_VECTORIZE_AVX)
  return _mm256_cvtps_pd(_mm_loadu_ps(from));
#elif defined(EIGEN_VECTORIZE_SSE2)
  return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  double wide[double_packet_size];
  for (int i = 0; i < double_packet_size; ++i) wide[i] = from[i];
  return Eigen::internal::ploadu<DoublePacket>(wide);
#endif
}

/// The first n <= packet_size values, then zeros.
template <class T>
EIGEN_ALWAYS_INLINE Packet load_up_to(const T* from, int n) {
  if (n == packet_size) return load(from);
  T padded[packet_size] = {};
  const auto less = static_cast<std::size_t>(n & (packet_size - 1));  // n, and gcc knows that it is not negative
  std::memcpy(static_cast<void*>(padded), from, sizeof(T) * less);
  return load(static_cast<const T*>(padded));
}

/// Sums of lanes of several packets at once, which take a third of the shuffles of as many predux(): of each packet by
/// itself, in an order that depends on nothing else.
/// @{
#if defined(EIGEN_VECTORIZE_AVX512)
constexpr int sums_at_once = 4;
inline void sums_of_lanes(const Packet* x, float* out) {
  const auto pair = [](Packet a, Packet b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  };
  const Packet ab = pair(x[0], x[1]), cd = pair(x[2], x[3]);
  const Packet all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
  const __m256 half =
      _mm256_add_ps(_mm512_castps512_ps256(all), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all), 1)));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}
#elif defined(EIGEN_VECTORIZE_AVX)
constexpr int sums_at_once = 8;
inline void sums_of_lanes(const Packet* x, float* out) {
  const auto pair = [](Packet a, Packet b) {
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  };
  const auto four = [&](const Packet* y) {
    const Packet ab = pair(y[0], y[1]), cd = pair(y[2], y[3]);
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
  };
  const Packet low = four(x), high = four(x + 4);
  _mm256_storeu_ps(out,
                   _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)));
}
#elif defined(EIGEN_VECTORIZE_SSE)
constexpr int sums_at_once = 4;
inline void sums_of_lanes(const Packet* x, float* out) {
  const auto pair = [](Packet a, Packet b) { return _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)); };
  const Packet ab = pair(x[0], x[1]), cd = pair(x[2], x[3]);
  _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)));
}
#else
constexpr int sums_at_once = 1;
inline void sums_of_lanes(const Packet* x, float* out) { *out = Eigen::internal::predux(*x); }
#endif
/// @}

/// out[i] = the sum of x[i]'s lanes for N packets, always in the same order, whatever N and i.
template <int N>
EIGEN_ALWAYS_INLINE void lane_sums(const Packet* x, float* out) {
  constexpr int whole = N / sums_at_once * sums_at_once;
  for (int i = 0; i < whole; i += sums_at_once) sums_of_lanes(x + i, out + i);
  if constexpr (whole < N) {
    Packet rest[sums_at_once];
    float sums[sums_at_once];
    for (int i = 0; i < sums_at_once; ++i) rest[i] = whole + i < N ? x[whole + i] : Eigen::internal::pset1<Packet>(0.f);
    sums_of_lanes(rest, sums);
    std::memcpy(out + whole, sums, sizeof(float) * (N - whole));
  }
}

/// The bits of a float.
inline std::uint32_t float_to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
/// The float that has these bits.
inline float bits_to_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
/// A value as a float, exactly. Without branches, so that compilers make vector code of a loop over them.
inline float to_float(float x) { return x; }
inline float to_float(std::int8_t x) { return x; }  ///< the same
/// The same.
inline float to_float(Eigen::bfloat16 x) {
  return bits_to_float(std::uint32_t{Eigen::numext::bit_cast<std::uint16_t>(x)} << 16);
}
/// The same.
inline float to_float(Eigen::half x) {
  // Not x.x, which is a number where the compiler has a type of its own for half.
  const std::uint32_t bits = Eigen::numext::bit_cast<std::uint16_t>(x), magnitude = bits & 0x7FFFu;
#if BUZZ_FINITE_MATH || BUZZ_REASSOCIATES
  // Programs linked with -ffast-math take subnormal floats for 0: here none is made. All ones where it is:
  const std::uint32_t subnormal = 0u - ((magnitude - 0x0400u) >> 31), special = 0u - ((0x7BFFu - magnitude) >> 31);
  const std::uint32_t exponent = 0x38000000u + (special & 0x38000000u) + (subnormal & 0x00800000u);
  // With a leading one, a subnormal half is 2^-14 too large.
  const std::uint32_t result =
      float_to_bits(bits_to_float((magnitude << 13) + exponent) - bits_to_float(subnormal & 0x38800000u));
#else
  // The exponent is rebased by a product, which subnormal numbers survive; infinity and NaN get theirs back after it.
  const float value = bits_to_float(magnitude << 13) * bits_to_float(0x77800000u);  // 2^112
  const std::uint32_t result = float_to_bits(value) | (magnitude >= 0x7C00u ? 0x7F800000u : 0u);
#endif
  return bits_to_float(result | (bits & 0x8000u) << 16);
}

/// The bits of a float as T, rounded to nearest even; a number past T's largest becomes that, while infinity and NaN
/// stay what they are. Without branches, as to_float().
template <class T>
inline std::uint16_t rounded_bits(float x);
/// As half: 65504 is the largest.
template <>
inline std::uint16_t rounded_bits<Eigen::half>(float x) {
  const std::uint32_t bits = float_to_bits(x), magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0x0FFFu + (magnitude >> 13 & 1u)) >> 13;
  // Added to 0.5, a subnormal half is the last bits of the sum.
  const std::uint32_t subnormal = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3F000000u;
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude > 0x477FE000u ? 0x7BFFu : result;
  result = magnitude >= 0x7F800000u ? 0x7C00u : result;
  result = magnitude > 0x7F800000u ? 0x7E00u : result;
  return static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000u));
}
/// As bfloat16: 3.39e38 is the largest.
template <>
inline std::uint16_t rounded_bits<Eigen::bfloat16>(float x) {
  const std::uint32_t bits = float_to_bits(x), magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t result = (magnitude + 0x7FFFu + (magnitude >> 16 & 1u)) >> 16;
  result = magnitude > 0x7F7F0000u ? 0x7F7Fu : result;
  result = magnitude >= 0x7F800000u ? 0x7F80u : result;
  result = magnitude > 0x7F800000u ? 0x7FC0u : result;
  return static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000u));
}

/// out[0..count) = in[0..count) as floats, exactly.
template <class T>
inline void convert(const T* in, std::ptrdiff_t count, float* out) {
  constexpr int block = loads_packets<T> ? packet_size : 16;  // a constant trip count is vectorised at -O2 too
  const std::ptrdiff_t whole = count - count % block;
  for (std::ptrdiff_t i = 0; i < whole; i += block) {
    if constexpr (loads_packets<T>)
      Eigen::internal::pstoreu(out + i, load(in + i));
    else
      for (int j = 0; j < block; ++j) out[i + j] = to_float(in[i + j]);
  }
  for (std::ptrdiff_t i = whole; i < count; ++i) out[i] = to_float(in[i]);
}

/// As many of in[0..count), from the first, as fast code converts to T: whole blocks, or none where one of them is no
/// number of T's, which takes rounded_bits().
template <class T>
inline std::ptrdiff_t convert_small(const float*, std::ptrdiff_t, T*) {
  return 0;
}
#if defined(EIGEN_VECTORIZE_AVX) && defined(__F16C__)
template <>
inline std::ptrdiff_t convert_small(const float* in, std::ptrdiff_t count, Eigen::half* out) {
  const __m128i magnitude = _mm_set1_epi16(0x7FFF);
  __m128i largest = _mm_setzero_si128();
  std::ptrdiff_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    largest = _mm_max_epi16(largest, _mm_and_si128(halves, magnitude));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
  }
  return _mm_movemask_epi8(_mm_cmpgt_epi16(largest, _mm_set1_epi16(0x7BFF))) != 0 ? 0 : i;
}
#endif
#if !BUZZ_FINITE_MATH  // else Eigen takes some NaN for 0
/// The same for bfloat16.
template <>
inline std::ptrdiff_t convert_small(const float* in, std::ptrdiff_t count, Eigen::bfloat16* out) {
  constexpr int block = sizeof(std::uint64_t) / sizeof *out;
  const std::ptrdiff_t whole = count - count % block;
  Eigen::Map<Eigen::Array<Eigen::bfloat16, Eigen::Dynamic, 1>>(out, whole) =
      Eigen::Map<const Eigen::ArrayXf>(in, whole).template cast<Eigen::bfloat16>();
  std::uint64_t carries = 0;  // of exponents that are all ones
  for (std::ptrdiff_t i = 0; i < whole; i += block) {
    std::uint64_t four;
    std::memcpy(&four, static_cast<const void*>(out + i), sizeof four);
    carries |= (four & 0x7FFF7FFF7FFF7FFFu) + 0x0080008000800080u;
  }
  return (carries & 0x8000800080008000u) != 0 ? 0 : whole;
}
#endif

/// out[0..count) = in[0..count) as T: see rounded_bits().
template <class T>
inline void convert_back(const float* in, std::ptrdiff_t count, T* out) {
  constexpr int block = 16;
  std::ptrdiff_t i = convert_small(in, count, out);
  std::uint16_t bits[block];
  for (const std::ptrdiff_t whole = i + (count - i) / block * block; i < whole; i += block) {
    for (int j = 0; j < block; ++j) bits[j] = rounded_bits<T>(in[i + j]);
    std::memcpy(static_cast<void*>(out + i), bits, sizeof bits);
  }
  for (; i < count; ++i) {
    bits[0] = rounded_bits<T>(in[i]);
    std::memcpy(static_cast<void*>(out + i), bits, sizeof(T));
  }
}

}  // namespace BUZZ_ISA
}  // namespace kernels
}  // namespace buzz
