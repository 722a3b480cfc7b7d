#pragma once

#include <algorithm>
#include <numeric>

#include "buzz/chunk.h"
#include "buzz/error.h"

namespace buzz {

/// Select: the `heavy` heaviest of all rows between sink and window (H2O, arXiv 2306.14048, section 4).
class TopK {
 public:
  /// How much it leaves, and when it evicts.
  struct Options {
    int heavy = 240;    ///< rows left by an eviction; >= 0
    int threshold = 0;  ///< rows between sink and window that trigger one when exceeded, >= heavy; 0: heavy, so that
                        ///< every call evicts, as in the paper
  };
  /// @{
  /// As in Segments.
  static constexpr int code = 2;  // in saved files
  static int most_moves(const Options&, int, int) { return unlimited_moves; }
  static constexpr Protect protect() { return {0, 160}; }
  static int usual_window(int spare) { return spare / 2; }  // of spare rows: half recent, half heavy, as in the paper
  static constexpr int least_middle = 1;
  static void fit(Options& o, int middle, int) { o.heavy = middle; }

  static void check(const Options& o) {
    require_at_least("heavy", o.heavy, 0);
    if (o.threshold != 0) require_at_least("threshold", o.threshold, o.heavy);
  }
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("heavy", o.heavy);
    a.same("threshold", o.threshold);
  }
  explicit TopK(const Options& o) : heavy_(o.heavy), threshold_(limit(o)) {}

  bool should_evict(const Regions& r) const { return r.middle() > threshold_; }
  static long long bound(const Options& o, int max_chunk) { return static_cast<long long>(limit(o)) + max_chunk; }
  static int room(const Options& o, int) { return o.heavy; }
  bool again(int) const { return false; }
  int forgotten(int) const { return -1; }
  /// @}

  /// The heaviest that still fit beside the pinned rows. O(hive + unfiltered) on average, and O(heavy log heavy) to put
  /// the kept rows in order.
  template <class Real>
  int pass(const Real* importance, int hive, int unfiltered, int pinned, std::int32_t* out) const {
    const int count = hive + unfiltered;
    return best(importance, count, (std::min)(heavy_ - pinned, count), out);
  }
  /// The `kept` heaviest of importance[0..count), kept <= count, ascending; ties fall to the lowest. Returns `kept`.
  template <class Real>
  static int best(const Real* importance, int count, int kept, std::int32_t* out) {
    std::iota(out, out + count, 0);
    const auto before = [importance](std::int32_t a, std::int32_t b) {
      return beats(importance[a], importance[b]) || (!beats(importance[b], importance[a]) && a < b);
    };
    if (kept < count) std::nth_element(out, out + kept, out + count, before);
    std::sort(out, out + kept);
    return kept;
  }

 private:
  static int limit(const Options& o) { return o.threshold != 0 ? o.threshold : o.heavy; }
  int heavy_, threshold_;
};

/// The same with nothing protected by default, as in TOVA and KeyDiff: every row stands for choice.
class TopKOfAll : public TopK {
 public:
  /// From its options.
  using TopK::TopK;
  static constexpr Protect protect() { return {0, 0}; }  ///< nothing
  static int usual_window(int) { return 0; }             ///< none: all rows stand for choice
};

/// The same behind a sink and a long window, for KeyOutliers: few rows of the history, chosen well, are enough. Its
/// sizes for a budget evict once in 32 tokens or more, so that looking at the keys costs a decode step next to nothing.
class TopKOfHistory : public TopK {
 public:
  /// From its options.
  using TopK::TopK;
  static constexpr Protect protect() { return {4, 960}; }           ///< a long window
  static int usual_window(int spare) { return spare - spare / 5; }  ///< four fifths of them
  /// Evicts once in 32 tokens or more, where half of the middle is enough for that.
  static void fit(Options& o, int middle, int max_chunk) { put_off(o, middle, max_chunk, 32); }

 protected:
  /// Once in so many tokens, 32 to 128, where they come one by one, oftener the longer calls are, once a call from 32
  /// tokens on.
  static void put_off(Options& o, int middle, int max_chunk, int most) {
    const long long tokens = (std::min)((std::max)(32, most), 128);
    const long long late = (std::max)(0LL, tokens - tokens * max_chunk / 32);
    o.heavy = middle - static_cast<int>((std::min<long long>)(late, middle / 2));
    o.threshold = middle;
  }
};

/// The same for scores that take longer to make: an eviction looks at the whole middle, and moves all rows behind it.
class TopKSeldom : public TopKOfHistory {
 public:
  /// From its options.
  using TopKOfHistory::TopKOfHistory;
  static int usual_window(int spare) { return spare - spare / 3; }  ///< two thirds of them
  /// Evicts once in 32 to 128 tokens, as far as half of the middle goes.
  static void fit(Options& o, int middle, int max_chunk) { put_off(o, middle, max_chunk, middle / 2); }
};

/// The same behind a short window, for Calibrated: what a row is worth is known when it comes, so that nearly all are
/// chosen.
class TopKOfText : public TopKOfHistory {
 public:
  /// Nearly all rows of the middle.
  struct Options : TopK::Options {
    Options() { heavy = 1140; }  ///< as many rows in all as TopKOfHistory has
  };
  /// From its options.
  using TopKOfHistory::TopKOfHistory;
  static constexpr Protect protect() { return {4, 60}; }            ///< a short window
  static int usual_window(int spare) { return (spare + 10) / 20; }  ///< a twentieth, to the nearest row
  /// Evicts once in 32 to 128 tokens, as far as a tenth of the middle goes.
  static void fit(Options& o, int middle, int max_chunk) { put_off(o, middle, max_chunk, middle / 10); }
};

/// The same behind SnapKV's observation window.
class TopKOfPrefix : public TopK {
 public:
  /// From its options.
  using TopK::TopK;
  static constexpr Protect protect() { return {0, 32}; }                ///< the observation window alone
  static int usual_window(int spare) { return (std::min)(32, spare); }  ///< 32 of them
};

}  // namespace buzz
