#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "buzz/eigen.h"

namespace buzz {

/// Stored values as packets of floats: Eigen's packets (SSE, AVX, AVX-512, NEON, or plain floats), and the loads that
/// Eigen 3.4 lacks or does one value at a time.
namespace kernels {
/// Each instruction set's own: see eigen.h.
inline namespace BUZZ_ISA {

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
  std::memcpy(static_cast<void*>(padded), from, sizeof(T) * static_cast<std::size_t>(n));
  return load(static_cast<const T*>(padded));
}

/// out[i] = the sum of x[i]'s lanes for N <= 4 packets, always in the same order, whatever N and i. Four at a time take
/// a third of the shuffles of four times predux().
template <int N>
EIGEN_ALWAYS_INLINE void lane_sums(const Packet* x, float* out) {
#if defined(EIGEN_VECTORIZE_AVX512)
  const Packet none = Eigen::internal::pset1<Packet>(0.f);
  const auto pair = [](Packet a, Packet b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  };
  const Packet ab = pair(x[0], N > 1 ? x[1 % N] : none);
  const Packet cd = pair(N > 2 ? x[2 % N] : none, N > 3 ? x[3 % N] : none);
  const Packet all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
  const __m256 half =
      _mm256_add_ps(_mm512_castps512_ps256(all), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all), 1)));
  const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  if constexpr (N == 4) {
    _mm_storeu_ps(out, sums);
  } else {
    float four[4];
    _mm_storeu_ps(four, sums);
    for (int i = 0; i < N; ++i) out[i] = four[i];
  }
#else
  for (int i = 0; i < N; ++i) out[i] = Eigen::internal::predux(x[i]);
#endif
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
  // The exponent is rebased by a product, which subnormal numbers survive; infinity and NaN get theirs back after it.
  const float value = bits_to_float(magnitude << 13) * bits_to_float(0x77800000u);  // 2^112
  std::uint32_t result;
  std::memcpy(&result, &value, sizeof result);
  return bits_to_float(result | (magnitude >= 0x7C00u ? 0x7F800000u : 0u) | (bits & 0x8000u) << 16);
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

/// out[0..count) = in[0..count) as T, rounded to nearest even.
template <class T>
inline void convert_back(const float* in, std::ptrdiff_t count, T* out) {
  std::ptrdiff_t i = 0;
#if defined(EIGEN_VECTORIZE_AVX) && defined(__F16C__)
  if constexpr (std::is_same<T, Eigen::half>::value)
    for (; i + 8 <= count; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>(out + i, count - i) =
      Eigen::Map<const Eigen::ArrayXf>(in + i, count - i).template cast<T>();
}

}  // namespace BUZZ_ISA
}  // namespace kernels
}  // namespace buzz
