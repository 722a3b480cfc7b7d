#pragma once

#include <cstdint>

#include "buzz/chunk.h"

namespace buzz {

/// What becomes of the hive when it is thinned. first: every hive_stride-th row from the oldest, whatever the scores
/// (the paper's). heaviest: the best of each hive chunk. together: hive and unfiltered rows are one stretch, cut into
/// chunks of keep * stride rows.
enum class HiveRule { first, heaviest, together };

/// The integers of a beehive (BUZZ, arXiv 2410.23079, section 3.2), for the host and the device: how many rows an
/// eviction leaves never depends on their scores.
struct Thin {
  int threshold = 400;              ///< rows of the middle above which an eviction happens
  long long chunk = 5;              ///< unfiltered rows of a chunk, of which
  int keep = 1;                     ///< stay
  int hive_stride = 3;              ///< one row in so many of the hive stays
  HiveRule hive = HiveRule::first;  ///< by which rule
  bool repeats = true;              ///< passes go on until the threshold holds

  /// Should an eviction happen? And another pass?
  /// @{
  BUZZ_HOST_DEVICE constexpr bool should_evict(int middle) const { return middle > threshold; }
  BUZZ_HOST_DEVICE constexpr bool again(int middle) const { return repeats && middle > threshold; }
  /// @}
  /// Rows of the hive that a pass keeps without ever reading their scores again; -1: all may be read.
  BUZZ_HOST_DEVICE constexpr int forgotten(int rows) const {
    return hive == HiveRule::first ? chunks(rows, hive_stride) : -1;
  }
  /// Rows of a chunk of the hive.
  BUZZ_HOST_DEVICE constexpr long long hive_chunk() const { return static_cast<long long>(keep) * hive_stride; }

  /// Rows of the hive, of `rows`, that a pass leaves, of the unfiltered ones, and of both; HiveRule::together has no
  /// hive.
  /// @{
  BUZZ_HOST_DEVICE constexpr int hive_left(int rows) const { return chunks(rows, hive_stride); }
  BUZZ_HOST_DEVICE constexpr int unfiltered_left(int rows) const { return left_of_chunks(rows, chunk, keep); }
  BUZZ_HOST_DEVICE constexpr int once(int rows, int unfiltered) const {
    return hive == HiveRule::together ? unfiltered_left(rows + unfiltered)
                                      : hive_left(rows) + unfiltered_left(unfiltered);
  }
  /// @}
  /// Rows that an eviction leaves, all its passes. O(log rows).
  BUZZ_HOST_DEVICE constexpr int left(int rows, int unfiltered) const {
    int count = once(rows, unfiltered);
    while (again(count)) count = once(count, 0);
    return count;
  }
};

}  // namespace buzz
