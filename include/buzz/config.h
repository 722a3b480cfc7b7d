#pragma once

// Every macro of the library, those of version.h and eigen.h apart.

// Functions of the ground floor run on the host and, compiled by nvcc, on the device.
#if defined(__CUDACC__)
#define BUZZ_HOST_DEVICE __host__ __device__
#else
#define BUZZ_HOST_DEVICE
#endif

// Kernels' bodies run on the device; a plain C++ compiler takes them too, so that tests can run them on the host.
#if defined(__CUDACC__)
#define BUZZ_DEVICE __device__
#define BUZZ_UNROLL _Pragma("unroll")
#else
#define BUZZ_DEVICE
#define BUZZ_UNROLL
#endif

// Error paths stay out of line, so that a check costs its caller one compare.
#if defined(__GNUC__) || defined(__clang__)
#define BUZZ_NOINLINE __attribute__((noinline, cold))
#elif defined(_MSC_VER)
#define BUZZ_NOINLINE __declspec(noinline)
#else
#define BUZZ_NOINLINE
#endif

// 1 where exceptions are on. Where they are off, an error calls BUZZ_ERROR_HANDLER(message), a macro
// that the user may define before the first include and that must not return; then std::abort().
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define BUZZ_EXCEPTIONS 1
#else
#define BUZZ_EXCEPTIONS 0
#endif

// What compiler flags allow. 1 where numbers are taken to be finite, so that it takes finite.h to ask whether they are:
// -ffast-math, -ffinite-math-only, /fp:fast.
#if (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || defined(_M_FP_FAST)
#define BUZZ_FINITE_MATH 1
#else
#define BUZZ_FINITE_MATH 0
#endif
// 1 where sums may be put in another order, and quotients made products: -ffast-math, gcc's
// -funsafe-math-optimizations, /fp:fast. as_written() of finite.h prevents it.
#if !defined(__CUDA_ARCH__) && (defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(_M_FP_FAST))
#define BUZZ_REASSOCIATES 1
#else
#define BUZZ_REASSOCIATES 0
#endif
// The same at the beginning of a function, for clang, which says nothing of its -funsafe-math-optimizations.
#if defined(__clang__) && __clang_major__ >= 12
#define BUZZ_AS_WRITTEN _Pragma("clang fp reassociate(off)")
#else
#define BUZZ_AS_WRITTEN
#endif
// 1 where a double may have more bits than it is stored with: -mfpmath=387.
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && !defined(__CUDA_ARCH__)
#define BUZZ_EXCESS_PRECISION 1
#else
#define BUZZ_EXCESS_PRECISION 0
#endif
// Has the compiler forget what it knows of an integer.
#if (BUZZ_FINITE_MATH || BUZZ_REASSOCIATES) && (defined(__GNUC__) || defined(__clang__)) && !defined(__CUDA_ARCH__)
#define BUZZ_FORGET(bits) __asm__("" : "+r"(bits))
#else
#define BUZZ_FORGET(bits) static_cast<void>(0)
#endif
