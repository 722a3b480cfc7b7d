// Numbers from a file's bytes.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tiny_llama {

/// A little-endian integer, half, bfloat16, float32 or float64 from its bytes, on any machine.
template <class U>
U from_bytes(const char* bytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(U); ++i) bits |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  if constexpr (std::is_same_v<U, Eigen::half> || std::is_same_v<U, Eigen::bfloat16>) {
    return Eigen::numext::bit_cast<U>(static_cast<std::uint16_t>(bits));
  } else if constexpr (std::is_same_v<U, float>) {
    return Eigen::numext::bit_cast<float>(static_cast<std::uint32_t>(bits));
  } else if constexpr (std::is_same_v<U, double>) {
    return Eigen::numext::bit_cast<double>(bits);
  } else {
    return static_cast<U>(bits);
  }
}
template <class U>
U from_bytes(std::string_view bytes) {
  return from_bytes<U>(bytes.data());
}

}  // namespace tiny_llama
