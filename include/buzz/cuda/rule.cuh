#pragma once

#include <cstdint>
#include <cstring>

#include "buzz/cuda/block.cuh"
#include "buzz/cuda/lengths.cuh"
#include "buzz/thin.h"

namespace buzz {
namespace cuda {

/// Whole numbers in the order of beats(): NaN is the least, and the two zeros are equal.
BUZZ_DEVICE inline std::uint64_t order(double x) {
  if (is_nan(x)) return 0;
  if (x == 0) x = 0.;
  std::uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

/// Which rows of a middle stay, and when: a selection (select/selection.h) as kernels take it, and equal to it. All but
/// pass() is about numbers of rows, for the host too; pass() runs in a block.
struct Rule {
  /// chunks: the beehive's passes (BUZZ, arXiv 2410.23079, section 3.2), as buzz::Segments. heaviest: the best of all,
  /// ties to the lowest row, as buzz::TopK; of `heavy` 0 it is buzz::KeepNone, and of `threshold` never buzz::KeepAll.
  enum class Kind { chunks, heaviest };
  static constexpr int never = 2147483647;  ///< a threshold that no middle exceeds

  Kind kind = Kind::heaviest;  ///< which of the two
  int threshold = never;       ///< rows of the middle above which an eviction happens
  int heavy = 0;               ///< most rows that an eviction leaves, up to the threshold; of Kind::heaviest
  Thin thin;                   ///< the sizes of the passes, of the same threshold; of Kind::chunks

  static constexpr int bits = 4;            ///< of a round of the radix select
  static constexpr int bins = 1 << bits;    ///< values of so many bits
  static constexpr int most_threads = 512;  ///< most of a block
  /// Shared memory of pass().
  struct Shared {
    int count[bins];      ///< rows by the round's bits
    int a[most_threads];  ///< scan()'s
    int b[most_threads];  ///< scan()'s
  };

  /// Should an eviction happen, with so many rows in the middle?
  BUZZ_HOST_DEVICE constexpr bool should_evict(int middle) const { return middle > threshold; }
  /// Should another pass follow, with so many rows left by the last?
  BUZZ_HOST_DEVICE constexpr bool again(int middle) const { return kind == Kind::chunks && thin.again(middle); }
  /// Rows that one pass leaves.
  BUZZ_HOST_DEVICE constexpr int once(int hive, int unfiltered) const {
    if (kind == Kind::chunks) return thin.once(hive, unfiltered);
    return hive + unfiltered < heavy ? hive + unfiltered : heavy;
  }
  /// Rows that an eviction leaves, all its passes. O(log rows).
  BUZZ_HOST_DEVICE constexpr int left(int hive, int unfiltered) const {
    return kind == Kind::chunks ? thin.left(hive, unfiltered) : once(hive, unfiltered);
  }
  /// How many rows that an eviction leaves, from the first, have scores that are never read again: those become 0, and
  /// the sink's; -1: none do. O(log rows).
  BUZZ_HOST_DEVICE constexpr int forgotten(int hive, int unfiltered) const {
    if (kind != Kind::chunks) return -1;
    int unread = thin.forgotten(hive), count = thin.once(hive, unfiltered);
    for (; thin.again(count); count = thin.once(count, 0)) unread = thin.forgotten(count);
    return unread;
  }

  /// One pass over importance [hive + unfiltered]: writes the once(hive, unfiltered) kept indices to out, ascending.
  /// O(rows / threads); where more than one row of each chunk stays, O(rows * chunk / threads).
  template <int threads, class Block>
  BUZZ_DEVICE void pass(Block& block, Shared& shared, const double* importance, int hive, int unfiltered,
                        std::int32_t* out) const {
    if (kind == Kind::chunks)
      pick_chunks<threads>(block, importance, hive, unfiltered, out);
    else
      pick_heaviest<threads>(block, shared, importance, hive + unfiltered, out);
  }

 private:
  /// A thread a chunk, the hive's first where it has any, and then the others: as buzz::pick_chunk(), but that how many
  /// rows of a chunk stay is what all leave less what those before it do, so that nothing is divided.
  template <int threads, class Block>
  BUZZ_DEVICE void pick_chunks(Block& block, const double* importance, int hive, int unfiltered,
                               std::int32_t* out) const {
    const bool together = thin.hive == HiveRule::together;
    const int rest = together ? 0 : hive, kept = together ? 0 : thin.hive_left(hive);
    const int count = hive + unfiltered - rest, left = thin.unfiltered_left(count);
    const int of_hive = thin.hive == HiveRule::heaviest ? chunks(hive, thin.hive_chunk()) : 0;
    const int all = of_hive + chunks(count, thin.chunk);
    block.phase([&](int t) {
      if (thin.hive == HiveRule::first)
        for (int i = t; i < kept; i += threads) out[i] = i * thin.hive_stride;
      for (int c = t; c < all; c += threads) {
        const bool in_hive = c < of_hive;
        const int its = in_hive ? c : c - of_hive, before = its * thin.keep, to = (in_hive ? 0 : kept) + before;
        const long long chunk = in_hive ? thin.hive_chunk() : thin.chunk;
        const int begin = static_cast<int>(its * chunk), more = (in_hive ? hive : count) - begin;
        const int stay = (in_hive ? kept : left) - before, from = begin + (in_hive ? 0 : rest);
        pick(importance + from, more < chunk ? more : static_cast<int>(chunk), stay < thin.keep ? stay : thin.keep,
             from, out + to);
      }
    });
  }

  /// A radix select of the least weight that stays, four bits a round, then the rows of that weight from the first.
  /// O(rows / threads), whatever the scores are.
  template <int threads, class Block>
  BUZZ_DEVICE void pick_heaviest(Block& block, Shared& shared, const double* importance, int count,
                                 std::int32_t* out) const {
    static_assert(threads <= most_threads, "a number a thread");
    int wanted = once(count, 0);  // of the rows whose order begins with the digits of `least`
    if (wanted == 0) return;
    std::uint64_t least = 0, known = 0;
    for (int shift = 64 - bits; shift >= 0; shift -= bits) {
      block.phase([&](int t) {
        if (t < bins) shared.count[t] = 0;
      });
      block.phase([&](int t) {
        for (int i = t; i < count; i += threads) {
          const std::uint64_t key = order(importance[i]);
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
      for (int i = t * stretch; i < count && i < (t + 1) * stretch; ++i) f(i, order(importance[i]));
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
};

/// After an eviction, where one should happen; else as they are.
BUZZ_HOST_DEVICE constexpr Lengths evicted(Lengths l, const Protect& protect, const Rule& rule) {
  const Regions r = l.regions(protect);
  if (!rule.should_evict(r.middle())) return l;
  l.hive = rule.left(r.hive, r.unfiltered);
  l.rows = r.sink + l.hive + r.window;
  return l;
}

}  // namespace cuda
}  // namespace buzz
