// Numbers from a file's bytes.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tiny_llama {

/// Is this machine's first byte of a number its lowest? Compilers know.
inline bool is_little_endian() {
  const std::uint16_t one = 1;
  unsigned char first;
  std::memcpy(&first, &one, 1);
  return first == 1;
}

/// A little-endian integer, half, bfloat16, float32 or float64 from its bytes, on any machine.
template <class U>
U from_bytes(const char* bytes) {
  U number;
  if (is_little_endian()) {
    std::memcpy(static_cast<void*>(&number), bytes, sizeof(U));
  } else {
    char turned[sizeof(U)];
    for (std::size_t i = 0; i < sizeof(U); ++i) turned[i] = bytes[sizeof(U) - 1 - i];
    std::memcpy(static_cast<void*>(&number), turned, sizeof(U));
  }
  return number;
}
template <class U>
U from_bytes(std::string_view bytes) {
  return from_bytes<U>(bytes.data());
}

}  // namespace tiny_llama
