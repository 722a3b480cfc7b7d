#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
// False alarms in gcc 12's own AVX-512 header, wherever it is inlined (gcc bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <Eigen/Core>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// One line in place of the pages that templates would say. gcc goes on after #error, and after a missing file does not.
#if !EIGEN_VERSION_AT_LEAST(3, 4, 0)
#error "buzz needs Eigen 3.4 to 5: the <Eigen/Core> that this compiler finds is older."
#define BUZZ_STOP <Eigen_3.4_to_5>
#include BUZZ_STOP
#endif

// A name for the registers and arithmetic that this translation unit is compiled for. What holds packets lives in an
// inline namespace of it, so that a linker does not take one unit's function for another's: those of
// `Packet load(const float*)` have the same symbol, whatever a Packet is. What holds none may be any unit's.
#if defined(EIGEN_VECTORIZE_AVX512)
#define BUZZ_ISA_PACKETS avx512
#elif defined(EIGEN_VECTORIZE_AVX2)
#define BUZZ_ISA_PACKETS avx2
#elif defined(EIGEN_VECTORIZE_AVX)
#define BUZZ_ISA_PACKETS avx
#elif defined(EIGEN_VECTORIZE_SSE)
#define BUZZ_ISA_PACKETS sse
#elif defined(EIGEN_VECTORIZE_SVE)
#define BUZZ_ISA_PACKETS sve
#elif defined(EIGEN_VECTORIZE_NEON)
#define BUZZ_ISA_PACKETS neon
#elif defined(EIGEN_VECTORIZE)
#define BUZZ_ISA_PACKETS vector
#else
#define BUZZ_ISA_PACKETS plain
#endif
#if defined(__FMA__)
#define BUZZ_ISA_SUMS _fma
#else
#define BUZZ_ISA_SUMS _sum
#endif
#if defined(EIGEN_HAS_ARM64_FP16_SCALAR_ARITHMETIC) || defined(EIGEN_HAS_BUILTIN_FLOAT16)
#define BUZZ_ISA_HALF _fp16  // a half travels in another register
#else
#define BUZZ_ISA_HALF _u16
#endif
#define BUZZ_JOINED(a, b, c) isa_##a##b##c
#define BUZZ_JOIN(a, b, c) BUZZ_JOINED(a, b, c)
#define BUZZ_ISA BUZZ_JOIN(BUZZ_ISA_PACKETS, BUZZ_ISA_SUMS, BUZZ_ISA_HALF)
