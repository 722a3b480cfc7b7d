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

namespace sanitized {

/// How often a test draws of `all` times. AddressSanitizer makes each take ten times as long, and what it looks for is
/// in every one.
constexpr unsigned draws(int all) {
#ifdef BUZZ_TEST_ASAN
  return static_cast<unsigned>(all + 5) / 6;
#else
  return static_cast<unsigned>(all);
#endif
}
/// Then they are few, and how often something came up among them says little.
constexpr bool few = draws(2) != 2;
/// And of sizes that are tried one after another: prime to all that the kernels take at once, and to how many values an
/// option has.
constexpr int stride = few ? 11 : 1;

}  // namespace sanitized
