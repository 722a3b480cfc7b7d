#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "buzz/config.h"

/// All that the library has, its macros apart (config.h, eigen.h, version.h).
namespace buzz {

/// What the library refuses, always as one of the three families below. what() reads "buzz: stride = 0, allowed: >= 1";
/// the object that was asked is as it was before the call.
class Error : public std::runtime_error {
 public:
  /// Text: what() says it.
  Error(std::string field, const std::string& text) : std::runtime_error(text), field_(std::move(field)) {}
  /// The name of the option, dimension, argument or part of a file that was refused.
  const std::string& field() const noexcept { return field_; }

 private:
  std::string field_;
};

/// The caller's mistake: an option, shape, view or request that cannot be, or a call out of order.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// The call is not wrong, and an emptier cache would take it: field() says what has run out: "rows" (evict, or
/// reset the cache), "position" (reset it) or "pinned rows" (unpin some).
class CacheFull : public Error {
 public:
  using Error::Error;
};

/// A file or stream that cannot be read or written, is damaged, too short or of another version, or is that of another
/// cache: field() is then the option or size that differs.
class FileError : public Error {
 public:
  using Error::Error;
};

/// The one place where errors leave the library: throws a Family of Error, or, where exceptions are off, calls
/// BUZZ_ERROR_HANDLER and aborts.
template <class Family = InvalidArgument>
[[noreturn]] BUZZ_NOINLINE void fail(std::string_view field, std::string_view value, std::string_view allowed) {
  std::string text = "buzz: ";
  text.append(field).append(" = ").append(value).append(", allowed: ").append(allowed);
#if BUZZ_EXCEPTIONS
  throw Family(std::string(field), text);
#else
#ifdef BUZZ_ERROR_HANDLER
  BUZZ_ERROR_HANDLER(text.c_str());
#endif
  std::abort();
#endif
}

/// The same for a whole number.
template <class Family = InvalidArgument>
[[noreturn]] BUZZ_NOINLINE void fail(std::string_view field, long long value, std::string_view allowed) {
  fail<Family>(field, std::to_string(value), allowed);
}

/// fail() of what is not in a range.
template <class Family = InvalidArgument>
[[noreturn]] BUZZ_NOINLINE void fail_range(const char* field, long long value, long long low, long long high) {
  fail<Family>(field, value, std::to_string(low) + " to " + std::to_string(high));
}

/// Refuses `value` unless low <= value <= high.
template <class Family = InvalidArgument>
void require_range(const char* field, long long value, long long low, long long high) {
  if (value < low || value > high) fail_range<Family>(field, value, low, high);
}

/// Refuses `value` unless value >= low.
template <class Family = InvalidArgument>
void require_at_least(const char* field, long long value, long long low) {
  if (value < low) fail<Family>(field, value, ">= " + std::to_string(low));
}

/// Refuses what is none of an enumeration's names, 0 to `last`.
template <class Enum>
void require_enum(const char* field, Enum value, Enum last) {
  const long long number = static_cast<long long>(value);
  if (number < 0 || number > static_cast<long long>(last))
    fail(field, number, "a name of the enumeration, 0 to " + std::to_string(static_cast<long long>(last)));
}

/// Refuses `value` unless it equals `expected`; `what` says what it has to agree with.
inline void require_equal(const char* field, long long value, long long expected, const char* what) {
  if (value != expected) fail(field, value, std::to_string(expected) + " (" + what + ")");
}

/// Refuses a call that would use `total` of `room`: the cache is full, but where `asked`, the call's own part of that,
/// is too much for an empty one.
inline void require_room(const char* field, long long total, long long asked, long long room) {
  if (asked <= room)
    require_range<CacheFull>(field, total, 0, room);
  else
    require_range(field, total, 0, room);
}

/// Calls f(). What it refuses is part()'s, a text's: field() is then "part.field"; but not where a stream fails, nor
/// CacheFull's, which says what has run out. Without exceptions the handler hears of the field alone.
template <class Part, class F>
decltype(auto) refusing_as(Part&& part, F&& f) {
#if BUZZ_EXCEPTIONS
  const auto named = [&](const Error& e) {
    return "buzz: " + part() + "." + (e.what() + std::char_traits<char>::length("buzz: "));
  };
  try {
    return f();
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(part() + "." + e.field(), named(e));
  } catch (const FileError& e) {
    if (e.field() == "stream") throw;
    throw FileError(part() + "." + e.field(), named(e));
  }
#else
  static_cast<void>(part);
  return f();
#endif
}

}  // namespace buzz
