// GGUF, the file format of llama.cpp's models: a reader that checks every count, length and offset before using it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "tiny_llama/bytes.h"
#include "tiny_llama/quant.h"

namespace tiny_llama {

using buzz::fail;
using buzz::FileError;

/// Text that came from outside, made fit to print: at most that many characters, ASCII only.
inline std::string fit_to_print(std::string_view text, std::size_t most) {
  std::string safe;
  for (char c : text.substr(0, most)) safe += (c >= ' ' && c <= '~') ? c : '?';
  return safe + (text.size() > most ? "..." : "");
}
/// The same between quotes, short.
inline std::string printable(std::string_view text) { return "'" + fit_to_print(text, 40) + "'"; }

enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// One metadata value, still as the file's bytes; an array's bytes are those of its elements one after another.
struct Value {
  ValueType type = ValueType::u8;
  ValueType element = ValueType::u8;  // of an array
  std::uint64_t count = 1;            // elements of an array
  std::string_view bytes;
};

struct Tensor {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;  // slowest first, as everywhere in buzz; the file has the fastest first
  std::int64_t size = 0;            // elements
  std::string_view bytes;
};

/// Reads little-endian fields one after another, and never past the end.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }

  std::string_view take(const std::string& field, std::uint64_t count) {
    if (count > left()) {
      fail<FileError>(field, std::to_string(count) + " bytes",
                      "<= " + std::to_string(left()) + " bytes, what is left of the file (it is truncated or damaged)");
    }
    at_ += static_cast<std::size_t>(count);
    return bytes_.substr(at_ - static_cast<std::size_t>(count), static_cast<std::size_t>(count));
  }

  template <class U>
  U integer(const std::string& field) {
    return from_bytes<U>(take(field, sizeof(U)));
  }

  /// A count of things of which each takes at least `smallest` bytes: one that cannot fit is refused before any work.
  std::uint64_t count(const std::string& field, std::uint64_t smallest) {
    const std::uint64_t value = integer<std::uint64_t>(field);
    if (value > left() / smallest) {
      fail<FileError>(field, std::to_string(value),
                      "<= " + std::to_string(left() / smallest) + ", what can be in the rest of the file");
    }
    return value;
  }

  std::string_view string(const std::string& field) {
    const std::uint64_t length = integer<std::uint64_t>(field + " length");
    return take(field, length);
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

/// A whole file in memory, and what is where in it. All that it returns points into it.
class Gguf {
 public:
  static Gguf parse(std::vector<char> file) { return Gguf(std::move(file)); }

  static Gguf read(const std::string& path) {
    std::error_code error;
    const bool regular = std::filesystem::is_regular_file(path, error);
    std::ifstream stream(path, std::ios::binary);
    if (!regular || !stream) fail<FileError>("model file", printable(path), "a GGUF file that can be read");
    std::vector<char> file(static_cast<std::size_t>(std::filesystem::file_size(path)));
    stream.read(file.data(), static_cast<std::streamsize>(file.size()));
    if (stream.gcount() != static_cast<std::streamsize>(file.size())) {
      fail<FileError>("model file", printable(path), "a GGUF file that can be read to its end");
    }
    return parse(std::move(file));
  }

  Gguf(Gguf&&) = default;  // a vector keeps its place when it moves, so the views stay right
  Gguf& operator=(Gguf&&) = default;

  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, Value, std::less<>>& values() const { return values_; }
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }

  std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t high) const {
    const Value& value = find(key);
    const std::int64_t number = to_integer(key, value.type, value.bytes);
    if (number < low || number > high) {
      fail<FileError>(key, std::to_string(number), std::to_string(low) + " to " + std::to_string(high));
    }
    return number;
  }
  int integer(const std::string& key, int low, int high, int fallback) const {
    return has(key) ? static_cast<int>(integer(key, low, high)) : fallback;
  }
  float number(const std::string& key) const {
    return from_bytes<float>(expect(key, ValueType::f32, "a 32-bit float").bytes);
  }
  float number(const std::string& key, float fallback) const { return has(key) ? number(key) : fallback; }
  bool boolean(const std::string& key, bool fallback) const {
    return has(key) ? expect(key, ValueType::boolean, "true or false").bytes[0] != 0 : fallback;
  }
  std::string_view text(const std::string& key) const { return expect(key, ValueType::string, "a text").bytes; }

  std::vector<std::string_view> texts(const std::string& key) const {
    const Value& value = array(key, ValueType::string, "an array of texts");
    std::vector<std::string_view> all;
    all.reserve(static_cast<std::size_t>(value.count));
    Cursor cursor(value.bytes);
    for (std::uint64_t i = 0; i < value.count; ++i) all.push_back(cursor.string(key));
    return all;
  }
  template <class U>  // float or std::int32_t
  std::vector<U> numbers(const std::string& key) const {
    constexpr bool is_float = std::is_same_v<U, float>;
    const Value& value = array(key, is_float ? ValueType::f32 : ValueType::i32,
                               is_float ? "an array of 32-bit floats" : "an array of 32-bit integers");
    std::vector<U> all(static_cast<std::size_t>(value.count));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = from_bytes<U>(value.bytes.substr(i * sizeof(U), sizeof(U)));
    return all;
  }

 private:
  explicit Gguf(std::vector<char> file) : file_(std::move(file)) {
    const std::string_view all(file_.data(), file_.size());
    Cursor cursor(all);
    const std::string_view magic = cursor.take("magic", 4);
    if (magic != "GGUF") fail<FileError>("magic", printable(magic), "'GGUF'");
    const auto version = cursor.integer<std::uint32_t>("version");
    if (version != 2 && version != 3) fail<FileError>("version", std::to_string(version), "2 or 3, little-endian");
    constexpr std::uint64_t smallest_tensor = 8 + 1 + 4 + 8 + 4 + 8, smallest_value = 8 + 1 + 4 + 1;
    const std::uint64_t tensors = cursor.count("tensor count", smallest_tensor);
    const std::uint64_t values = cursor.count("metadata count", smallest_value);
    for (std::uint64_t i = 0; i < values; ++i) read_value(cursor);
    read_tensors(cursor, tensors, all);
  }

  void read_value(Cursor& cursor) {
    const std::string_view key = cursor.string("metadata key");
    if (key.empty() || key.size() > 65535)
      fail<FileError>("metadata key length", std::to_string(key.size()), "1 to 65535");
    Value value;
    value.type = value_type(key, cursor);
    if (value.type == ValueType::array) {
      value.element = value_type(key, cursor);
      value.count = cursor.count(printable(key) + " elements", width(value.element) == 0 ? 8 : width(value.element));
    }
    value.bytes = value.type == ValueType::array ? elements(key, value, cursor) : one(key, value.type, cursor);
    if (!values_.emplace(key, value).second) fail<FileError>("metadata key", printable(key), "each key once");
  }

  static ValueType value_type(std::string_view key, Cursor& cursor) {
    const auto type = cursor.integer<std::uint32_t>(printable(key) + " type");
    if (type > 12) fail<FileError>(printable(key) + " type", std::to_string(type), "0 to 12");
    return static_cast<ValueType>(type);
  }

  /// Bytes of a value of that type; 0 for those that say their own length.
  static std::uint64_t width(ValueType type) {
    constexpr std::uint64_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return widths[static_cast<std::uint32_t>(type)];
  }

  static std::string_view one(std::string_view key, ValueType type, Cursor& cursor) {
    if (type == ValueType::string) return cursor.string(printable(key));
    const std::string_view bytes = cursor.take(printable(key), width(type));
    if (type == ValueType::boolean && static_cast<unsigned char>(bytes[0]) > 1) {
      fail<FileError>(printable(key), std::to_string(static_cast<unsigned char>(bytes[0])), "0 or 1");
    }
    return bytes;
  }

  static std::string_view elements(std::string_view key, const Value& value, Cursor& cursor) {
    if (value.element == ValueType::array)
      fail<FileError>(printable(key), "an array of arrays", "an array of numbers or texts");
    const std::string name = printable(key);
    if (value.element != ValueType::string) return cursor.take(name, value.count * width(value.element));
    Cursor start = cursor;  // the texts are walked once here, so that no later read can fail
    for (std::uint64_t i = 0; i < value.count; ++i) cursor.string(name);
    return start.take(name, cursor.at() - start.at());
  }

  void read_tensors(Cursor& cursor, std::uint64_t count, std::string_view all) {
    const std::int64_t alignment = has("general.alignment") ? integer("general.alignment", 1, 1 << 20) : 32;
    if ((alignment & (alignment - 1)) != 0)
      fail<FileError>("general.alignment", std::to_string(alignment), "a power of 2");
    const auto step = static_cast<std::uint64_t>(alignment);
    std::vector<std::pair<Tensor*, std::uint64_t>> offsets;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string_view name = cursor.string("tensor name");
      if (name.empty() || name.size() > 64)
        fail<FileError>("tensor name length", std::to_string(name.size()), "1 to 64");
      const auto [place, is_new] = tensors_.emplace(name, read_tensor(name, cursor));
      if (!is_new) fail<FileError>("tensor", printable(name), "each name once");
      const auto offset = cursor.integer<std::uint64_t>(printable(name) + " offset");
      if (offset % step != 0) {
        fail<FileError>(printable(name) + " offset", std::to_string(offset), "a multiple of " + std::to_string(step));
      }
      offsets.emplace_back(&place->second, offset);
    }
    const std::uint64_t data = (cursor.at() + step - 1) / step * step;
    const std::uint64_t room = all.size() > data ? all.size() - data : 0;
    for (auto& [tensor, offset] : offsets) tensor->bytes = locate(*tensor, offset, data, room, all);
  }

  static Tensor read_tensor(std::string_view name, Cursor& cursor) {
    Tensor tensor;
    tensor.name = std::string(name);
    const auto axes = cursor.integer<std::uint32_t>(printable(name) + " axes");
    if (axes < 1 || axes > 4) fail<FileError>(printable(name) + " axes", std::to_string(axes), "1 to 4");
    constexpr std::uint64_t most = std::uint64_t{1} << 40;  // elements; leaves the byte count far from overflow
    std::uint64_t size = 1;
    for (std::uint32_t axis = 0; axis < axes; ++axis) {
      const auto length = cursor.integer<std::uint64_t>(printable(name) + " shape");
      if (length < 1 || length > most / size) {
        fail<FileError>(printable(name) + " shape", std::to_string(length), "1 to " + std::to_string(most / size));
      }
      size *= length;
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(length));
    }
    tensor.size = static_cast<std::int64_t>(size);
    const auto type = cursor.integer<std::uint32_t>(printable(name) + " type");
    tensor.type = static_cast<TensorType>(type);
    const bool known = quant::with_format(tensor.type, [&](auto format) {
      if (tensor.shape.back() % format.numbers != 0)
        fail<FileError>(printable(name) + " shape", std::to_string(tensor.shape.back()),
                        "a multiple of " + std::to_string(format.numbers) + " (" + format.name + ")");
    });
    if (!known) fail<FileError>(printable(name) + " type", std::to_string(type), quant::all_formats());
    return tensor;
  }

  static std::string_view locate(const Tensor& tensor, std::uint64_t offset, std::uint64_t data, std::uint64_t room,
                                 std::string_view all) {
    const auto size = static_cast<std::uint64_t>(tensor.size);
    std::uint64_t bytes = 0;
    quant::with_format(tensor.type, [&](auto f) { bytes = size / f.numbers * f.bytes; });
    if (bytes > room || offset > room - bytes) {
      fail<FileError>("tensor offset + bytes", std::to_string(offset) + " + " + std::to_string(bytes),
                      "<= " + std::to_string(room) + ", the bytes of tensor data in the file");
    }
    return all.substr(static_cast<std::size_t>(data + offset), static_cast<std::size_t>(bytes));
  }

  const Value& find(const std::string& key) const {
    const auto place = values_.find(key);
    if (place == values_.end()) fail<FileError>(key, "missing", "metadata that a llama model has");
    return place->second;
  }
  const Value& expect(const std::string& key, ValueType type, const char* what) const {
    const Value& value = find(key);
    if (value.type != type)
      fail<FileError>(key, "a value of type " + std::to_string(static_cast<int>(value.type)), what);
    return value;
  }
  const Value& array(const std::string& key, ValueType element, const char* what) const {
    const Value& value = expect(key, ValueType::array, what);
    if (value.element != element)
      fail<FileError>(key, "elements of type " + std::to_string(static_cast<int>(value.element)), what);
    return value;
  }

  static std::int64_t to_integer(const std::string& key, ValueType type, std::string_view bytes) {
    switch (type) {
      case ValueType::u8:
        return from_bytes<std::uint8_t>(bytes);
      case ValueType::i8:
        return from_bytes<std::int8_t>(bytes);
      case ValueType::u16:
        return from_bytes<std::uint16_t>(bytes);
      case ValueType::i16:
        return from_bytes<std::int16_t>(bytes);
      case ValueType::u32:
        return from_bytes<std::uint32_t>(bytes);
      case ValueType::i32:
        return from_bytes<std::int32_t>(bytes);
      case ValueType::u64:
        if (from_bytes<std::uint64_t>(bytes) > INT64_MAX) {
          fail<FileError>(key, std::to_string(from_bytes<std::uint64_t>(bytes)), "<= " + std::to_string(INT64_MAX));
        }
        return from_bytes<std::int64_t>(bytes);
      case ValueType::i64:
        return from_bytes<std::int64_t>(bytes);
      default:
        fail<FileError>(key, "a value of type " + std::to_string(static_cast<int>(type)), "an integer");
    }
  }

  std::vector<char> file_;
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

/// Errors: an element, or a scale of a block, that is NaN or infinite.
inline void check_finite(const Tensor& tensor) {
  const auto refuse = [&](const char* what, std::int64_t i) {
    fail<FileError>(printable(tensor.name), std::string(what) + " " + std::to_string(i) + ", which is not finite",
                    "finite ones");
  };
  quant::with_format(tensor.type, [&](auto format) {
    for (std::int64_t block = 0; block < tensor.size / format.numbers; ++block) {
      const char* bytes = tensor.bytes.data() + format.bytes * block;
      if constexpr (format.numbers == 1)
        if (!buzz::is_finite(format.to_float(bytes))) refuse("element", block);
      for (int i = 0; i < format.halves; ++i)
        if (!buzz::is_finite(quant::half(bytes + format.halves_at + 2 * i))) refuse("scale of block", block);
    }
  });
}

/// The tensor's elements as float. Errors: see check_finite().
inline void to_float(const Tensor& tensor, float* out) {
  check_finite(tensor);
  quant::to_float(tensor.type, tensor.bytes.data(), tensor.size, out);
}

}  // namespace tiny_llama
