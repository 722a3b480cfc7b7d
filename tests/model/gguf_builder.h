// Writes small GGUF files in memory, good ones and bad ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace model {

/// The little-endian bytes of an integer or a float32.
template <class U>
std::string bytes(U value) {
  std::uint64_t bits = 0;
  if constexpr (std::is_same_v<U, float>) {
    static_assert(sizeof(float) == 4);
    std::uint32_t narrow = 0;
    for (int i = 0; i < 4; ++i) narrow |= std::uint32_t{reinterpret_cast<unsigned char*>(&value)[i]} << (8 * i);
    bits = narrow;
  } else {
    bits = static_cast<std::uint64_t>(value);
  }
  std::string out;
  for (std::size_t i = 0; i < sizeof(U); ++i) out += static_cast<char>(bits >> (8 * i) & 0xFF);
  return out;
}

/// A text as GGUF has it: its length in 8 bytes, then the text.
inline std::string text(std::string_view value) { return bytes<std::uint64_t>(value.size()) + std::string(value); }

// Numbers of GGUF's types.
constexpr std::uint32_t u8 = 0, u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9, u64 = 10, i64 = 11;
constexpr std::uint32_t tensor_f32 = 0, tensor_f16 = 1, tensor_q4_1 = 3, tensor_q5_0 = 6, tensor_q8_0 = 8,
                        tensor_q4_k = 12, tensor_q6_k = 14, tensor_bf16 = 30;

template <class U>
std::string list(std::uint32_t element, const std::vector<U>& values) {
  std::string out = bytes<std::uint32_t>(element) + bytes<std::uint64_t>(values.size());
  for (const U& value : values) {
    if constexpr (std::is_same_v<U, std::string>) {
      out += text(value);
    } else {
      out += bytes<U>(value);
    }
  }
  return out;
}

struct TensorEntry {
  std::string name;
  std::vector<std::uint64_t> lengths;  // as in the file: the fastest first
  std::uint32_t type = tensor_f32;
  std::string data;
  std::uint64_t offset = automatic;
  static constexpr std::uint64_t automatic = ~std::uint64_t{0};
};

/// Every part can be made wrong by setting it so.
class GgufBuilder {
 public:
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;                               // what the data are laid out by
  std::vector<std::pair<std::string, std::string>> metadata;  // key; type and value
  std::vector<TensorEntry> tensors;
  std::uint64_t extra_metadata = 0, extra_tensors = 0;  // added to the counts, with nothing behind them

  void set(const std::string& key, std::uint32_t type, const std::string& value) {
    remove(key);
    metadata.emplace_back(key, bytes<std::uint32_t>(type) + value);
  }
  void remove(const std::string& key) {
    for (std::size_t i = metadata.size(); i-- > 0;) {
      if (metadata[i].first == key) metadata.erase(metadata.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  TensorEntry& tensor(const std::string& name) {
    for (TensorEntry& entry : tensors) {
      if (entry.name == name) return entry;
    }
    tensors.push_back({name, {}, tensor_f32, "", TensorEntry::automatic});
    return tensors.back();
  }

  std::vector<char> build() const {
    std::string file = magic + bytes<std::uint32_t>(version) + bytes<std::uint64_t>(tensors.size() + extra_tensors) +
                       bytes<std::uint64_t>(metadata.size() + extra_metadata);
    for (const auto& [key, value] : metadata) file += text(key) + value;
    std::string data;
    for (const TensorEntry& entry : tensors) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      file += text(entry.name) + bytes<std::uint32_t>(static_cast<std::uint32_t>(entry.lengths.size()));
      for (std::uint64_t length : entry.lengths) file += bytes<std::uint64_t>(length);
      const std::uint64_t offset = entry.offset == TensorEntry::automatic ? data.size() : entry.offset;
      file += bytes<std::uint32_t>(entry.type) + bytes<std::uint64_t>(offset);
      data += entry.data;
    }
    if (!tensors.empty()) file.resize((file.size() + alignment - 1) / alignment * alignment);
    file += data;
    return {file.begin(), file.end()};
  }
};

}  // namespace model
