#pragma once

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>

#include "buzz/error.h"

namespace buzz {

/// Most heads of a layer, most values of a row of a head: so that their products stay whole numbers.
/// @{
constexpr int most_heads = 1 << 16;
constexpr int most_head_dim = 1 << 16;
/// @}
/// Most bytes of one allocation; of 2^64 bytes, so that a few of them can still be added up.
constexpr std::size_t most_bytes =
    (std::numeric_limits<std::size_t>::max)() / (sizeof(std::size_t) > 4 ? std::size_t{64} : std::size_t{2});

/// Refuses a size that is not from 1 to `most`.
inline void require_size(const char* field, long long value, long long most) {
  require_at_least(field, value, 1);
  if (value > most) fail(field, value, "<= " + std::to_string(most));
}

/// The product of sizes, each >= 0, that `field` names. Errors: it is more than `most`.
inline std::size_t product_of(const char* field, std::initializer_list<long long> sizes, std::size_t most) {
  std::size_t count = 1;
  bool fits = true;
  for (const long long size : sizes) {
    if (size == 0) return 0;
    const std::size_t factor = static_cast<std::size_t>(size);
    fits = fits && factor <= most / count;
    if (fits) count *= factor;
  }
  if (fits) return count;
  std::string product;
  for (const long long size : sizes) product += (product.empty() ? "" : " * ") + std::to_string(size);
  fail(field, product, "at most " + std::to_string(most));
}

/// How many values of T an allocation has: the product of sizes, each >= 0; `field` names them. Errors: more bytes than
/// most_bytes. Where there is less memory than that, allocations fail as allocations do: std::bad_alloc.
template <class T>
std::size_t count_of(const char* field, std::initializer_list<long long> sizes) {
  return product_of(field, sizes, most_bytes / sizeof(T));
}

}  // namespace buzz
