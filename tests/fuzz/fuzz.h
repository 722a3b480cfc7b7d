#pragma once

// What the fuzzers share: decisions read from bytes, and how a body fails.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "buzz/error.h"

/// One execution over any bytes. libFuzzer's main calls it, and replay.cpp's. It returns, or it aborts.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

/// Ends the program where the library is not as it should be.
inline void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

/// The bytes of an input, one decision after another; zeros after the last.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : next_(data), end_(data + size) {}

  bool done() const { return next_ == end_; }
  int byte() { return done() ? 0 : *next_++; }
  /// low to high, both included.
  int in(int low, int high) { return low + byte() % (high - low + 1); }
  bool one_in(int n) { return byte() % n == n - 1; }
  int word() {
    const int high = byte();
    return high * 256 + byte();
  }
  /// What is left.
  const std::uint8_t* data() const { return next_; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - next_); }

 private:
  const std::uint8_t *next_, *end_;
};

/// Does the library refuse f()? Any other exception is a fault, and ends the program.
template <class Family = buzz::Error, class F>
bool refuses(F&& f) {
  try {
    f();
  } catch (const Family&) {
    return true;
  }
  return false;
}

/// f() is refused if and only if it should be, and what was refused changed nothing: `bytes()` are all there is.
template <class Bytes, class F>
bool refused_rightly(bool should, const char* what, Bytes&& bytes, F&& f) {
  const std::string before = should ? bytes() : std::string();
  require(refuses(f) == should, what);
  if (should) require(bytes() == before, "a refused operation changed something");
  return should;
}

}  // namespace fuzz
