// Keys, values and attention that are made up, so that an example is about where rows lie: what a row holds says which
// token and head it is of.
#pragma once

#include <cstdint>

namespace made_up {

/// 0 to 1, the same everywhere: 24 bits of a hash.
inline float number(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t x = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du;
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  x = (x ^ (x >> 12)) * 0x297a2d39u;
  return static_cast<float>((x ^ (x >> 15)) >> 8) / (1 << 24);
}

/// Element d of a token's key in a KV head.
inline float key(int head, int position, int d) {
  return number(static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(d));
}

/// What the query of a token gives the row of another in a query head: a few rows get most of it.
inline float attention(int query_head, int query, int position) {
  const float x = number(static_cast<std::uint32_t>(query_head) + 100, static_cast<std::uint32_t>(query) / 64,
                         static_cast<std::uint32_t>(position));
  return x * x * x * x / static_cast<float>(query + 1);
}

}  // namespace made_up
