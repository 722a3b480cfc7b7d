#pragma once

#include <cstdint>
#include <cstring>

#include "buzz/cuda/block.cuh"
#include "buzz/thin.h"

namespace buzz {
namespace cuda {

/// A rule says which rows of a middle stay, and this one shows the interface: all but pass() is about numbers of rows,
/// for the host too; pass() runs in a block. It has the beehive's passes (BUZZ, arXiv 2410.23079, section 3.2), a
/// thread a chunk. Equal to buzz::Segments, since each chunk is picked by the same function.
struct SegmentsRule {
  Thin thin;  ///< the sizes

  /// Shared memory of pass(): none.
  struct Shared {};
  /// Is an eviction due, with so many rows in the middle?
  BUZZ_HOST_DEVICE constexpr bool due(int middle) const { return thin.due(middle); }
  /// Rows that an eviction leaves, all its passes. O(log rows).
  BUZZ_HOST_DEVICE constexpr int left(int hive, int fresh) const { return thin.left(hive, fresh); }
  /// Is another pass due, with so many rows left by the last?
  BUZZ_HOST_DEVICE constexpr bool again(int middle) const { return thin.again(middle); }
  /// Rows that one pass leaves.
  BUZZ_HOST_DEVICE constexpr int once(int hive, int fresh) const { return thin.once(hive, fresh); }
  /// How many rows that an eviction leaves, from the first, have scores that are never read again: those become 0, and
  /// the sink's; -1: none do. O(log rows).
  BUZZ_HOST_DEVICE constexpr int forgotten(int hive, int fresh) const {
    int unread = thin.forgotten(hive), count = thin.once(hive, fresh);
    for (; thin.again(count); count = thin.once(count, 0)) unread = thin.forgotten(count);
    return unread;
  }

  /// One pass over worth [hive + fresh]: writes the once(hive, fresh) kept indices to out, ascending. O(rows * chunk /
  /// threads), O(rows / threads) where one row of each chunk stays.
  template <int threads, class Block>
  BUZZ_DEVICE void pass(Block& block, Shared&, const double* worth, int hive, int fresh, std::int32_t* out) const {
    const bool together = thin.hive == HiveRule::together;
    const int rest = together ? 0 : hive, kept = together ? 0 : thin.hive_left(hive);
    block.phase([&](int t) {
      if (thin.hive == HiveRule::first)
        for (int i = t; i < kept; i += threads) out[i] = i * thin.hive_stride;
      if (thin.hive == HiveRule::heaviest) pick_all<threads>(t, worth, hive, thin.hive_chunk(), 0, out);
      pick_all<threads>(t, worth + rest, hive + fresh - rest, thin.chunk, rest, out + kept);
    });
  }

 private:
  template <int threads>
  BUZZ_DEVICE void pick_all(int t, const double* worth, int count, long long chunk, int offset,
                            std::int32_t* out) const {
    for (int c = t; c < chunks(count, chunk); c += threads)
      pick_chunk(worth, count, chunk, thin.keep, c, offset, out + static_cast<long long>(c) * thin.keep);
  }
};

/// Whole numbers in the order of beats(): NaN is the least, and the two zeros are equal.
BUZZ_DEVICE inline std::uint64_t order(double x) {
  if (is_nan(x)) return 0;
  if (x == 0) x = 0.;
  std::uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

/// The heaviest of all, ties to the lowest row (buzz::TopK): a radix select of the least weight that stays, four bits a
/// round, then the rows of that weight from the first. O(rows / threads), whatever the worths are.
struct TopKRule {
  int heavy = 240;      ///< most rows that an eviction leaves
  int threshold = 240;  ///< rows of the middle that make one due when exceeded; >= heavy

  static constexpr int bits = 4;            ///< of a round
  static constexpr int bins = 1 << bits;    ///< values of so many bits
  static constexpr int most_threads = 256;  ///< most of a block
  /// A block's.
  struct Shared {
    int count[bins];      ///< rows by the round's bits
    int a[most_threads];  ///< scan()'s
    int b[most_threads];  ///< scan()'s
  };
  /// @{
  /// As in SegmentsRule.
  BUZZ_HOST_DEVICE constexpr bool due(int middle) const { return middle > threshold; }
  BUZZ_HOST_DEVICE constexpr int left(int hive, int fresh) const { return once(hive, fresh); }
  BUZZ_HOST_DEVICE constexpr bool again(int) const { return false; }
  BUZZ_HOST_DEVICE constexpr int once(int hive, int fresh) const { return hive + fresh < heavy ? hive + fresh : heavy; }
  BUZZ_HOST_DEVICE constexpr int forgotten(int, int) const { return -1; }

  template <int threads, class Block>
  BUZZ_DEVICE void pass(Block& block, Shared& shared, const double* worth, int hive, int fresh,
                        std::int32_t* out) const {
    static_assert(threads <= most_threads, "a number a thread");
    const int count = hive + fresh;
    int wanted = once(hive, fresh);  // of the rows whose order begins with the digits of `least`
    if (wanted == 0) return;
    std::uint64_t least = 0, known = 0;
    for (int shift = 64 - bits; shift >= 0; shift -= bits) {
      block.phase([&](int t) {
        if (t < bins) shared.count[t] = 0;
      });
      block.phase([&](int t) {
        for (int i = t; i < count; i += threads) {
          const std::uint64_t key = order(worth[i]);
          if ((key & known) == least) block.add(&shared.count[(key >> shift) % bins], 1);
        }
      });
      int digit = bins - 1;
      for (; digit > 0 && shared.count[digit] < wanted; --digit) wanted -= shared.count[digit];
      least |= static_cast<std::uint64_t>(digit) << shift;
      known |= static_cast<std::uint64_t>(bins - 1) << shift;
      block.phase([&](int) {});  // all have read the counts
    }
    // `wanted` of the rows equal to the least stay, the first ones. Each thread takes a stretch of rows.
    const int stretch = (count - 1) / threads + 1;
    const auto each = [&](int t, auto&& f) {
      for (int i = t * stretch; i < count && i < (t + 1) * stretch; ++i) f(i, order(worth[i]));
    };
    block.phase([&](int t) {
      int equal = 0;
      each(t, [&](int, std::uint64_t key) { equal += key == least; });
      shared.a[t] = equal;
    });
    scan<threads>(block, shared.a, shared.b);
    typename Block::template Private<int> before(block);  // rows equal to the least in earlier stretches
    block.phase([&](int t) {
      before[t] = shared.a[t];
      int kept = 0, equal = before[t];
      each(t, [&](int, std::uint64_t key) { kept += key > least || (key == least && equal++ < wanted); });
      shared.a[t] = kept;
    });
    scan<threads>(block, shared.a, shared.b);
    block.phase([&](int t) {
      int at = shared.a[t], equal = before[t];
      each(t, [&](int i, std::uint64_t key) {
        if (key > least || (key == least && equal++ < wanted)) out[at++] = i;
      });
    });
  }
  /// @}
};

/// Nothing between sink and window stays (StreamingLLM, arXiv 2309.17453).
struct NothingRule {
  int threshold = 0;  ///< rows that make an eviction due when exceeded

  /// None.
  struct Shared {};
  /// @{
  /// As in SegmentsRule.
  BUZZ_HOST_DEVICE constexpr bool due(int middle) const { return middle > threshold; }
  BUZZ_HOST_DEVICE constexpr int left(int, int) const { return 0; }
  BUZZ_HOST_DEVICE constexpr bool again(int) const { return false; }
  BUZZ_HOST_DEVICE constexpr int once(int, int) const { return 0; }
  BUZZ_HOST_DEVICE constexpr int forgotten(int, int) const { return -1; }
  template <int threads, class Block>
  BUZZ_DEVICE void pass(Block&, Shared&, const double*, int, int, std::int32_t*) const {}
  /// @}
};

/// Everything stays: no eviction is ever due.
struct EverythingRule : NothingRule {
  BUZZ_HOST_DEVICE constexpr bool due(int) const { return false; }  ///< never
};

}  // namespace cuda
}  // namespace buzz
