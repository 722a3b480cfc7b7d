// The metadata of one namespace: what is not read, and is not known to change nothing, is refused by its name.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buzz/finite.h"
#include "tiny_llama/gguf.h"

namespace tiny_llama {

/// A number of any type, or true (1) or false (0), as double; false where the value is none of these.
inline bool to_number(const Value& value, double& out) {
  const auto is = [&](auto number) { return out = static_cast<double>(number), true; };
  switch (value.type) {
    case ValueType::u8:
    case ValueType::boolean:
      return is(from_bytes<std::uint8_t>(value.bytes));
    case ValueType::i8:
      return is(from_bytes<std::int8_t>(value.bytes));
    case ValueType::u16:
      return is(from_bytes<std::uint16_t>(value.bytes));
    case ValueType::i16:
      return is(from_bytes<std::int16_t>(value.bytes));
    case ValueType::u32:
      return is(from_bytes<std::uint32_t>(value.bytes));
    case ValueType::i32:
      return is(from_bytes<std::int32_t>(value.bytes));
    case ValueType::u64:
      return is(from_bytes<std::uint64_t>(value.bytes));
    case ValueType::i64:
      return is(from_bytes<std::int64_t>(value.bytes));
    case ValueType::f32:
      return is(from_bytes<float>(value.bytes));
    case ValueType::f64:
      return is(from_bytes<double>(value.bytes));
    default:
      return false;
  }
}

/// A number as people write it, or as `true` or `false`.
inline std::string number_text(double number, bool boolean) {
  if (boolean) return number != 0 ? "true" : "false";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", number);
  return text;
}

/// A value, fit to print.
inline std::string shown(const Value& value) {
  double number = 0;
  if (to_number(value, number)) return number_text(number, value.type == ValueType::boolean);
  return value.type == ValueType::string ? printable(value.bytes)
                                         : "an array of " + std::to_string(value.count) + " elements";
}

/// Reads the keys that begin with `space`, and notes which; the other accessors are as those of Gguf.
class Metadata {
 public:
  /// The file must outlive it. space: as "llama.".
  Metadata(const Gguf& file, std::string space) : file_(file), space_(std::move(space)) {}

  bool has(const char* name) const { return file_.has(space_ + name); }
  int integer(const char* name, int low, int high) { return static_cast<int>(file_.integer(use(name), low, high)); }
  int integer(const char* name, int low, int high, int fallback) {
    return file_.integer(use(name), low, high, fallback);
  }
  float number(const char* name) { return file_.number(use(name)); }
  float number(const char* name, float fallback) { return file_.number(use(name), fallback); }
  bool boolean(const char* name, bool fallback) { return file_.boolean(use(name), fallback); }
  std::string_view text(const char* name) { return file_.text(use(name)); }
  std::vector<std::string_view> texts(const char* name) { return file_.texts(use(name)); }
  template <class U>
  std::vector<U> numbers(const char* name) {
    return file_.numbers<U>(use(name));
  }

  /// A text that may be missing. Errors: another one.
  void expect(const char* name, std::string_view allowed) {
    const std::string key = use(name);
    if (file_.has(key) && file_.text(key) != allowed)
      fail<FileError>(key, printable(file_.text(key)), printable(allowed));
  }
  /// A text that has to be there. Errors: none, or another one.
  void require(const char* name, std::string_view allowed) {
    const std::string_view given = text(name);
    if (given != allowed) fail<FileError>(space_ + name, printable(given), printable(allowed));
  }
  /// A number, true or false that may be missing, and with which nothing is computed since with `allowed` there is
  /// nothing to do. Errors: another value, NaN too, or one of another kind.
  void expect(const char* name, double allowed) {
    const std::string key = use(name);
    if (!file_.has(key)) return;
    const Value& value = file_.values().find(key)->second;
    double number = 0;
    if (!to_number(value, number) || !buzz::is_finite(number) || number != allowed)
      fail<FileError>(key, shown(value), number_text(allowed, value.type == ValueType::boolean));
  }
  /// Keys that say something of the model, and whatever they say, nothing is computed from it; also those below them.
  void describe(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      use(name);
      below_.push_back(space_ + name + ".");
    }
  }

  /// A key that was neither read nor described may change what the model computes.
  void refuse_others() const {
    for (const auto& [key, value] : file_.values()) {
      if (begins(key, space_) && used_.count(key) == 0 && !is_below(key)) refuse(key, value);
    }
  }
  [[noreturn]] static void refuse(const std::string& key, const Value& value) {
    fail<FileError>(fit_to_print(key, 200), shown(value), "no value, since this reader does not know the key");
  }
  static bool begins(const std::string& key, const std::string& with) { return key.compare(0, with.size(), with) == 0; }

 private:
  std::string use(const char* name) { return *used_.insert(space_ + name).first; }
  bool is_below(const std::string& key) const {
    for (const std::string& start : below_) {
      if (begins(key, start)) return true;
    }
    return false;
  }

  const Gguf& file_;
  std::string space_;
  std::set<std::string> used_;
  std::vector<std::string> below_;
};

}  // namespace tiny_llama
