#pragma once

// Every macro of the library, version.h's apart.

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
