#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <istream>
#include <ostream>
#include <string>
#include <type_traits>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/option_visitor.h"

namespace buzz {

/// The format of a saved cache: "BUZZ", a version, then the fields in a fixed order, then a checksum. All
/// little-endian: whole numbers as int64, real ones as binary64, arrays in their own type. The fields themselves are
/// listed once, in the archive() functions of what is saved; a Writer writes them, a Reader reads and checks them.
/// Version 1, whose sums of attention were floats, is read too, and 2 and 3, which had fewer options.
constexpr int archive_version = 4;

/// FNV-1a over 64 bits: every step can be undone, so that one changed byte always changes it.
class Checksum {
 public:
  /// Counts `count` more bytes in.
  void add(const unsigned char* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) state_ = (state_ ^ bytes[i]) * 0x100000001B3u;
  }
  std::uint64_t value() const { return state_; }  ///< of all bytes so far

 private:
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

/// Reverses each value's bytes where the host is big-endian.
template <std::size_t Size>
void little_endian(unsigned char* bytes, std::size_t values) {
  const std::uint16_t probe = 1;
  unsigned char low;
  std::memcpy(&low, &probe, 1);
  if (low == 1) return;
  for (std::size_t v = 0; v < values; ++v) std::reverse(bytes + v * Size, bytes + (v + 1) * Size);
}

/// Writes fields to a stream as they come. Errors: the stream refuses (FileError).
class Writer {
 public:
  /// Begins with magic, of four bytes, and version: a cache's, or another file's.
  explicit Writer(std::ostream& out, const char* magic = "BUZZ", int version = archive_version) : out_(out) {
    raw(reinterpret_cast<const unsigned char*>(magic), 4);
    same("version", version);
  }

  /// What the reader must already have: sizes, options.
  template <class T>
  void same(const char*, T value) {
    if constexpr (std::is_floating_point<T>::value)
      put(static_cast<double>(value));
    else
      put(static_cast<std::int64_t>(value));
  }
  /// The same of an option that is new in a version.
  template <class T>
  void same_since(int, const char* field, T value, T) {
    same(field, value);
  }
  /// State: a number within a range that the reader checks.
  void number(const char*, const int& value, long long, long long) { put(static_cast<std::int64_t>(value)); }
  /// `count` values of T.
  template <class T>
  void array(const T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable<T>::value, "saved as bytes");
    constexpr std::size_t batch = 4096 / sizeof(T);
    unsigned char bytes[batch * sizeof(T)];
    for (std::size_t done = 0; done < count; done += batch) {
      const std::size_t n = count - done < batch ? count - done : batch;
      std::memcpy(bytes, static_cast<const void*>(values + done), n * sizeof(T));
      little_endian<sizeof(T)>(bytes, n);
      raw(bytes, n * sizeof(T));
    }
  }
  /// `count` sums, which version 1 has as floats.
  void sums(const double* values, std::size_t count) { array(values, count); }

  std::uint64_t checksum() const { return sum_.value(); }  ///< of all until now
  /// Ends with the checksum. Errors: the stream refuses.
  void finish() {
    put(static_cast<std::int64_t>(sum_.value()));
    out_.flush();
    if (!out_) fail<FileError>("stream", "write failed", "a stream that takes all bytes");
  }

 private:
  template <class T>
  void put(T value) {
    array(&value, 1);
  }
  void raw(const unsigned char* bytes, std::size_t count) {
    sum_.add(bytes, count);
    out_.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(count));
  }

  std::ostream& out_;
  Checksum sum_;
};

/// Reads and checks what a Writer wrote. Errors, all of them FileError: another magic, version, size or option, named;
/// numbers out of range; fewer bytes than there should be; another checksum. What it filled until then is to be thrown
/// away.
class Reader {
 public:
  /// Checks magic, of four bytes, and version: those of a cache, or of another file.
  explicit Reader(std::istream& in, const char* magic = "BUZZ", int newest = archive_version) : in_(in) {
    unsigned char its[4];
    raw(its, 4);
    if (std::memcmp(its, magic, 4) != 0) fail<FileError>("magic", "other bytes", std::string("\"") + magic + "\"");
    number("version", version_, 1, newest);
  }

  /// A number that has to be `expected`, and is named `field` where it is not.
  template <class T>
  void same(const char* field, T expected) {
    if constexpr (std::is_floating_point<T>::value) {
      const double value = get<double>();
      if (is_nan(value) || value != static_cast<double>(expected))
        fail<FileError>(field, std::to_string(value), std::to_string(expected) + ", as in this cache");
    } else {
      const std::int64_t value = get<std::int64_t>();
      if (value != static_cast<std::int64_t>(expected))
        fail<FileError>(field, value, std::to_string(static_cast<std::int64_t>(expected)) + ", as in this cache");
    }
  }
  /// The same of an option that is new in a version, before which caches were as if it were `before`.
  template <class T>
  void same_since(int version, const char* field, T expected, T before) {
    if (version_ >= version) return same(field, expected);
    if (expected != before)
      fail<FileError>(field, "that of version " + std::to_string(version_) + ": " + std::to_string(before),
                      std::to_string(expected) + ", as in this cache");
  }
  /// A whole number, from low to high.
  void number(const char* field, int& value, long long low, long long high) {
    const std::int64_t read = get<std::int64_t>();
    require_range<FileError>(field, read, low, high);
    value = static_cast<int>(read);
  }
  /// `count` values of T.
  template <class T>
  void array(T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable<T>::value, "saved as bytes");
    unsigned char* bytes = reinterpret_cast<unsigned char*>(values);
    raw(bytes, count * sizeof(T));
    little_endian<sizeof(T)>(bytes, count);
  }
  /// `count` sums, which version 1 has as floats.
  void sums(double* values, std::size_t count) {
    if (version_ > 1) return array(values, count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(get<float>());
  }

  /// Checks the checksum.
  void finish() {
    const std::uint64_t expected = sum_.value();
    if (static_cast<std::uint64_t>(get<std::int64_t>()) != expected)
      fail<FileError>("checksum", "another", "the one that the bytes before it have");
  }

 private:
  template <class T>
  T get() {
    T value;
    array(&value, 1);
    return value;
  }
  void raw(unsigned char* bytes, std::size_t count) {
    in_.read(reinterpret_cast<char*>(bytes), static_cast<std::streamsize>(count));
    if (static_cast<std::size_t>(in_.gcount()) != count)
      fail<FileError>("stream", "ends early", "all bytes that were saved");
    sum_.add(bytes, count);
  }

  std::istream& in_;
  Checksum sum_;
  int version_ = 0;  // of the file
};

/// Options as fields of a saved file, with which the cache that reads it has to agree.
template <class Archive>
class OptionsOfFile final : public OptionVisitor {
 public:
  /// Into a Writer, or out of a Reader.
  explicit OptionsOfFile(Archive& a) : a_(a) {}
  bool saves() const override { return true; }  ///< it does
  /// One option.
  void whole(const char* name, int& value, long long, long long, const char*) override { a_.same(name, value); }

 protected:
  void number(const char* name, double& value, bool (*)(double), const char*, const char*) override {
    a_.same(name, value);
  }
  void one_of(const char* name, int& value, const char* const*, int, const char*) override { a_.same(name, value); }

 private:
  Archive& a_;
};

}  // namespace buzz
