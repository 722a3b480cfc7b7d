#pragma once

#include <cstdint>

#include "buzz/config.h"

namespace buzz {

/// The rows of a cache, oldest first: sink | hive | unfiltered | window. (BUZZ, arXiv 2410.23079, section 3.)
///
/// sink: the first rows of the sequence. hive: what earlier evictions left of the history. unfiltered: rows that left
/// the window since the last eviction. window: the newest rows, the row being decoded included.
/// The sizes are the same for every head and never depend on scores.
struct Regions {
  int sink = 0;        ///< rows
  int hive = 0;        ///< rows
  int unfiltered = 0;  ///< rows
  int window = 0;      ///< rows

  /// The rows that an eviction may take: hive and unfiltered. They start at row `sink`.
  BUZZ_HOST_DEVICE constexpr int middle() const { return hive + unfiltered; }
  BUZZ_HOST_DEVICE constexpr int rows() const { return sink + hive + unfiltered + window; }  ///< all of them
};

/// Field by field.
BUZZ_HOST_DEVICE constexpr bool operator==(const Regions& a, const Regions& b) {
  return a.sink == b.sink && a.hive == b.hive && a.unfiltered == b.unfiltered && a.window == b.window;
}
BUZZ_HOST_DEVICE constexpr bool operator!=(const Regions& a, const Regions& b) { return !(a == b); }  ///< not that

/// How many rows a policy protects by index: the first `sink` of the sequence and the newest `window`.
/// Units: rows; both >= 0. A window of 1 holds the newest row alone.
struct Protect {
  int sink = 4;      ///< first rows of the sequence
  int window = 160;  ///< newest rows, the one being decoded included
};

/// The regions of `rows` rows of which `hive` were chosen by earlier evictions: the sink fills first, the newest
/// rows are the window, what lies between hive and window is unfiltered. O(1).
BUZZ_HOST_DEVICE constexpr Regions divide(int rows, int hive, const Protect& protect) {
  Regions r;
  r.sink = rows < protect.sink ? rows : protect.sink;
  r.hive = hive;
  const int rest = rows - r.sink - hive;
  r.window = rest < protect.window ? rest : protect.window;
  r.unfiltered = rest - r.window;
  return r;
}

/// Times that a row may be moved, and its key rotated anew and rounded, for rotated keys to be as good as raw ones.
constexpr int few_moves = 32;
/// What a selection says that may move a row at every call: more than few.
constexpr int unlimited_moves = few_moves + 1;

/// ceil(count / size) for count >= 0, size >= 1, without overflow.
BUZZ_HOST_DEVICE constexpr int chunks(long long count, long long size) {
  return count == 0 ? 0 : static_cast<int>((count - 1) / size + 1);
}

/// The hive's stride by default: (stride + 1) / 2 as in the paper, but at least 2, since 1 would never shrink it.
BUZZ_HOST_DEVICE constexpr int default_hive_stride(int stride) { return stride < 3 ? 2 : stride / 2 + (stride % 2); }

}  // namespace buzz
