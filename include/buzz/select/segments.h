#pragma once

#include <algorithm>

#include "buzz/error.h"
#include "buzz/thin.h"

namespace buzz {

/// until_bounded: passes repeat until the hive is within the threshold, so that a long prompt is bounded at once.
/// single: one pass an eviction, as the authors' code; the bound of the rows between sink and window is then
/// 2 * (max_chunk + 1) in place of threshold + max_chunk, where that is more.
enum class Passes { until_bounded, single };

/// Select: the beehive (BUZZ, section 3.2). Unfiltered rows are cut into chunks of keep * stride and each leaves its
/// `keep` heaviest; the hive is thinned to one row in hive_stride. So the middle keeps ceil(hive / hive_stride) +
/// ceil(unfiltered / stride) rows, whatever the scores are.
class Segments {
 public:
  /// The chunks, and what becomes of what earlier ones left.
  struct Options {
    int threshold = 400;  ///< rows between sink and window that trigger an eviction when exceeded; >= 1, with together
                          ///< and a chunk >= ceil(chunk / (chunk - keep)) - 1, so that a pass still leaves fewer
    int stride = 5;       ///< one row in `stride` of the unfiltered rows is kept;
                          ///< >= 1, but >= 2 with HiveRule::together or Passes::single
    int keep = 1;         ///< rows kept of each chunk of keep * stride; the paper's is 1; >= 1
    int chunk = 0;  ///< rows of a chunk where that is no whole stride, and stride is 0; >= keep, with together > keep,
                    ///< with single >= 2 * keep; 0: keep * stride
    int hive_stride = 0;  ///< >= 2; 0: ceil(stride / 2), or ceil(chunk / (2 * keep)) where a chunk is given, but at
                          ///< least 2; not used by HiveRule::together
    HiveRule hive = HiveRule::first;        ///< how the hive is thinned
    Passes passes = Passes::until_bounded;  ///< when it is

    /// Sets keep and chunk, at least least_chunk rows, so that `unfiltered` rows leave exactly `left`: for a prompt
    /// that is to use all of a budget. Errors: unfiltered < 1, left out of 1 to unfiltered, least_chunk < 1.
    /// O(unfiltered).
    void leave(int left, int unfiltered, int least_chunk = 8) {
      require_at_least("unfiltered", unfiltered, 1);
      require_range("left", left, 1, unfiltered);
      require_at_least("least_chunk", least_chunk, 1);
      stride = 0;
      chunk = (std::min)(least_chunk, unfiltered);
      const auto leaves = [&] { return (1LL * unfiltered * keep - 1) / chunk + 1; };
      // A chunk of all rows does it at the latest.
      for (;; ++chunk) {
        keep = static_cast<int>(1LL * left * chunk / unfiltered);
        if (keep > 0 && leaves() == left) return;
      }
    }
  };
  static constexpr int code = 1;                            ///< in saved files
  static constexpr Protect protect() { return {4, 160}; }   ///< sink and window by default
  static int usual_window(int spare) { return spare / 2; }  ///< of spare rows, for for_rows()
  static constexpr int least_middle = 1;                    ///< rows of the middle that a budget has to have
  /// Gives the middle so many rows of a budget.
  static void fit(Options& o, int middle, int) { o.threshold = middle; }
  /// The paper's sizes, which are the defaults too.
  static void as_published(Options& o) { o = Options(); }

  /// Errors: an option out of its range, or those that do not go together.
  static void check(const Options& o) {
    require_at_least("threshold", o.threshold, 1);
    require_enum("hive", o.hive, HiveRule::together);
    require_enum("passes", o.passes, Passes::single);
    // A stride of 1 keeps every unfiltered row, so that one pass alone or one over all rows would never shrink
    // anything.
    const bool one = o.hive != HiveRule::together && o.passes == Passes::until_bounded;
    require_at_least("keep", o.keep, 1);
    if (o.chunk == 0) {
      require_at_least("stride", o.stride, one ? 1 : 2);
    } else {
      require_equal("stride", o.stride, 0, "chunk is given");
      const bool single = o.passes == Passes::single;
      require_at_least("chunk", o.chunk, single ? 2LL * o.keep : o.hive == HiveRule::together ? o.keep + 1LL : o.keep);
      require_at_least("threshold", o.threshold, least_to_shrink(o) - 1LL);
    }
    if (o.hive == HiveRule::together)
      require_equal("hive_stride", o.hive_stride, 0, "HiveRule::together has none");
    else if (o.hive_stride != 0)
      require_at_least("hive_stride", o.hive_stride, 2);
  }
  /// Writes or checks the options of a saved cache.
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("threshold", o.threshold);
    a.same("stride", o.stride);
    if (o.stride == 0) a.same("chunk", o.chunk);
    a.same("keep", o.keep);
    a.same("hive_stride", o.hive_stride);
    a.same("hive", static_cast<int>(o.hive));
    a.same("passes", static_cast<int>(o.passes));
  }
  /// What options that check() takes come to.
  static Thin thin(const Options& o) {
    Thin t;
    t.threshold = o.threshold;
    t.chunk = o.chunk != 0 ? o.chunk : static_cast<long long>(o.keep) * o.stride;
    t.keep = o.keep;
    t.hive_stride = o.hive_stride != 0 ? o.hive_stride
                    : o.chunk != 0     ? (std::max)(2, static_cast<int>((o.chunk - 1) / (2LL * o.keep)) + 1)
                                       : default_hive_stride(o.stride);
    t.hive = o.hive;
    t.repeats = o.passes == Passes::until_bounded;
    return t;
  }
  /// The options have been checked.
  explicit Segments(const Options& o) : thin_(thin(o)) {}

  /// Does the budget call for an eviction?
  bool should_evict(const Regions& r) const { return thin_.should_evict(r.middle()); }
  /// Most rows between sink and window, a call of max_chunk tokens included.
  static long long bound(const Options& o, int max_chunk) {
    const long long once = static_cast<long long>(o.threshold) + max_chunk;
    if (o.passes == Passes::until_bounded) return once;
    return (std::max)(once, 2LL * (max_chunk + 1LL));  // the fixed point of rows / 2 + 1 + max_chunk
  }
  /// Most evictions that move one row, from its append until it is dropped, while nothing is pinned; `few_moves` + 1
  /// stands for any number above few_moves. O(1).
  static int most_moves(const Options& o, int window, int max_chunk) {
    const Thin t = thin(o);
    const long long left = bound(o, max_chunk) - max_chunk;  // most rows of the middle after an eviction
    // In the window a row moves at each eviction. Two in a row drop this many rows at least (what the first leaves is
    // hive, which the second thins), and no more can be dropped than were left before and came since.
    const long long dropped = t.hive == HiveRule::together
                                  ? 2LL * (t.threshold + 1LL - t.unfiltered_left(t.threshold + 1))
                                  : 1LL + t.threshold - t.hive_left(t.threshold);
    const long long spare = window - 1 + left - (t.threshold + 1LL);
    long long moves = (std::min)(1LL * window, spare < 0 ? 1 : 3 + 2 * (spare / (std::max)(2LL, dropped)));
    ++moves;  // into the hive
    // There, at worst, it is among those that its chunk keeps, behind as many of them as were before it.
    const long long chunk = t.hive == HiveRule::first      ? t.hive_stride
                            : t.hive == HiveRule::heaviest ? t.hive_chunk()
                                                           : t.chunk;
    const int keep = t.hive == HiveRule::first ? 1 : t.keep;
    for (long long at = left - 1; at > 0 && moves <= few_moves; ++moves)
      at = (std::min)(at - 1, at / chunk * keep + (std::min)(at % chunk, keep - 1LL));
    return static_cast<int>((std::min)(moves, few_moves + 1LL));
  }
  /// Most rows between sink and window that may be pinned, so that passes still come to an end.
  static int room(const Options& o, int max_chunk) {
    if (o.passes == Passes::until_bounded) return o.threshold + 1 - least_to_shrink(o);
    return static_cast<int>(bound(o, max_chunk) - 2LL * (max_chunk + 1LL));
  }
  /// Should one more pass follow, with so many rows in the middle?
  bool again(int middle) const { return thin_.again(middle); }
  /// Rows of the hive that a pass keeps without ever reading their scores again; -1: all may be read.
  int forgotten(int hive) const { return thin_.forgotten(hive); }

  /// One pass over importance[0..hive + unfiltered), rows between sink and window that are not pinned (the others are
  /// `pinned` more): writes the kept indices, ascending, and returns how many.
  template <class Real>
  int pass(const Real* importance, int hive, int unfiltered, int, std::int32_t* out) const {
    const Thin& t = thin_;
    if (t.hive == HiveRule::together) return pick_of_chunks(importance, hive + unfiltered, t.chunk, t.keep, out);
    const int kept = t.hive == HiveRule::first ? pick_every(hive, t.hive_stride, out)
                                               : pick_of_chunks(importance, hive, t.hive_chunk(), t.keep, out);
    const int added = pick_of_chunks(importance + hive, unfiltered, t.chunk, t.keep, out + kept);
    for (int i = kept; i < kept + added; ++i) out[i] += hive;
    return kept + added;
  }

 private:
  /// The fewest rows of which a repeated pass leaves fewer.
  static int least_to_shrink(const Options& o) {
    return o.chunk != 0 && o.hive == HiveRule::together ? chunks(o.chunk, o.chunk - o.keep) : 2;
  }
  Thin thin_;
};

}  // namespace buzz
