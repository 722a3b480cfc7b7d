#pragma once

#include <algorithm>

#include "buzz/error.h"
#include "buzz/regions.h"

namespace buzz {

/// Select: nothing between sink and window stays (StreamingLLM, arXiv 2309.17453; with sink 0 a sliding window).
class KeepNone {
 public:
  /// When it evicts.
  struct Options {
    int threshold = 0;  ///< rows between sink and window that trigger an eviction when exceeded; >= 0. 0: at every
                        ///< call; more makes evictions rarer and each cheaper a token
  };
  /// @{
  /// As in Segments.
  static constexpr int code = 3;  // in saved files
  static int most_moves(const Options&, int, int) { return unlimited_moves; }
  static constexpr Protect protect() { return {4, 160}; }
  static int usual_window(int spare) { return spare; }  // evict at every call, keep the most
  static constexpr int least_middle = 0;
  static void fit(Options& o, int middle, int) { o.threshold = middle; }

  static void check(const Options& o) { require_at_least("threshold", o.threshold, 0); }
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("threshold", o.threshold);
  }
  explicit KeepNone(const Options& o) : threshold_(o.threshold) {}

  bool should_evict(const Regions& r) const { return r.middle() > threshold_; }
  static long long bound(const Options& o, int max_chunk) { return static_cast<long long>(o.threshold) + max_chunk; }
  static int room(const Options& o, int) { return o.threshold; }
  bool again(int) const { return false; }
  int forgotten(int) const { return -1; }
  template <class Real>
  int pass(const Real*, int, int, int, std::int32_t*) const {
    return 0;
  }
  /// @}

 private:
  int threshold_;
};

/// Select: everything stays, up to `capacity` rows, those of sink and window among them; past that append() refuses.
class KeepAll {
 public:
  /// How much it holds.
  struct Options {
    int capacity = 4096;  ///< all rows, whatever sink and window are; >= 1
  };
  /// @{
  /// As in Segments.
  static constexpr int code = 4;  // in saved files
  static constexpr int most_moves(const Options&, int, int) { return 0; }
  static constexpr Protect protect() { return {0, 0}; }
  static int usual_window(int) { return 0; }
  static constexpr int least_middle = 0;
  template <class PolicyOptions>
  static void fit(PolicyOptions& o, int middle, int max_chunk) {
    o.capacity = o.sink + o.window + middle + max_chunk;
  }

  static void check(const Options& o) { require_at_least("capacity", o.capacity, 1); }
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("capacity", o.capacity);
  }
  explicit KeepAll(const Options&) {}

  bool should_evict(const Regions&) const { return false; }
  // Less than 0 where sink and window do not fill.
  template <class PolicyOptions>
  static long long bound(const PolicyOptions& o, int) {
    return static_cast<long long>(o.capacity) - o.sink - o.window;
  }
  template <class PolicyOptions>
  static int room(const PolicyOptions& o, int) {
    return (std::max)(0, o.capacity - o.sink);
  }
  bool again(int) const { return false; }
  int forgotten(int) const { return -1; }
  template <class Real>
  int pass(const Real*, int hive, int unfiltered, int, std::int32_t* out) const {
    for (int i = 0; i < hive + unfiltered; ++i) out[i] = i;
    return hive + unfiltered;
  }
  /// @}
};

}  // namespace buzz
