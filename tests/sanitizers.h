#pragma once

// Which sanitizer looks on: gcc says it by macros, clang by features.
#if defined(__SANITIZE_ADDRESS__)
#define BUZZ_TEST_ASAN
#endif
#if defined(__SANITIZE_THREAD__)
#define BUZZ_TEST_TSAN
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BUZZ_TEST_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define BUZZ_TEST_TSAN
#endif
#if __has_feature(memory_sanitizer)
#define BUZZ_TEST_MSAN
#endif
#endif
