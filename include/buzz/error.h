#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

#include "buzz/config.h"

/// Everything that the library has, its macros apart (config.h, version.h).
namespace buzz {

/// A bad option, shape, view or request. what() reads "buzz: stride = 0, allowed: >= 1"; the object that was asked is
/// as it was before the call.
class InvalidArgument : public std::invalid_argument {
 public:
  /// Text: what() says it.
  InvalidArgument(std::string field, const std::string& text) : std::invalid_argument(text), field_(std::move(field)) {}
  /// The name of the option, dimension or argument that was refused.
  const std::string& field() const noexcept { return field_; }

 private:
  std::string field_;
};

/// The one place where errors leave the library: throws InvalidArgument, or, where exceptions are off, calls
/// BUZZ_ERROR_HANDLER and aborts.
[[noreturn]] BUZZ_NOINLINE inline void fail(const std::string& field, const std::string& value,
                                            const std::string& allowed) {
  const std::string text = "buzz: " + field + " = " + value + ", allowed: " + allowed;
#if BUZZ_EXCEPTIONS
  throw InvalidArgument(field, text);
#else
#ifdef BUZZ_ERROR_HANDLER
  BUZZ_ERROR_HANDLER(text.c_str());
#endif
  std::abort();
#endif
}

/// The same for a whole number.
[[noreturn]] BUZZ_NOINLINE inline void fail(const std::string& field, long long value, const std::string& allowed) {
  fail(field, std::to_string(value), allowed);
}

/// Refuses `value` unless low <= value <= high.
inline void require_range(const char* field, long long value, long long low, long long high) {
  if (value < low || value > high) fail(field, value, std::to_string(low) + " to " + std::to_string(high));
}

/// Refuses `value` unless value >= low.
inline void require_at_least(const char* field, long long value, long long low) {
  if (value < low) fail(field, value, ">= " + std::to_string(low));
}

/// Refuses `value` unless it equals `expected`; `what` says what it has to agree with.
inline void require_equal(const char* field, long long value, long long expected, const char* what) {
  if (value != expected) fail(field, value, std::to_string(expected) + " (" + what + ")");
}

}  // namespace buzz
