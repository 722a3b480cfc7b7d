#pragma once

#include <cstddef>

namespace buzz {

/// Bytes allocated, by part.
struct Memory {
  std::size_t keys_and_values = 0;  ///< K, V and their scales
  std::size_t policy = 0;           ///< scores, positions, room to select in, copies for rollback
  std::size_t scratch = 0;          ///< of attention, and tables of angles
  std::size_t total() const { return keys_and_values + policy + scratch; }  ///< all of it
  /// Adds another's, part by part.
  Memory& operator+=(const Memory& other) {
    keys_and_values += other.keys_and_values;
    policy += other.policy;
    scratch += other.scratch;
    return *this;
  }
};

}  // namespace buzz
