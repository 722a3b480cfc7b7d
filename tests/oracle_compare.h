#pragma once

// Runs one configuration through the library and through the oracle side by side and throws Mismatch at the first
// difference. The oracle attends over the very keys that the library stored, after each of them was compared with its
// own; so scores and outputs differ by float arithmetic alone, whatever the element type.

#include <stdexcept>
#include <vector>

#include "any_cache.h"

namespace oracle {

struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void expect(bool good, const char* what) {
  if (!good) throw Mismatch(what);
}

/// What a run of configurations met, so that a test can say that it tested something.
struct Statistics {
  int configurations = 0, evictions = 0, repeated_passes = 0, near_ties = 0;
  int evictions_of[kKinds] = {};
};

constexpr double kTolerance = 3e-5;  // of float arithmetic, relative; ten times what was measured

Tokens tokens_of(const std::vector<float>& flat, int heads, int dim);

/// The oracle rounds its rows as the library does.
Options stored_as(Element element, Options o);

class Comparison {
 public:
  Comparison(Element element, const Config& c, Statistics* statistics);

  void run();

 private:
  void call(int n, Types types);

  std::vector<float> values(int n, int heads, int dim, float amplitude, bool as_elements);

  /// The user's own scores: few values, so that many tie, and some that are not finite.
  void give();

  /// Sizes, regions, positions, and the stored rows from `first` on; then the oracle takes the stored keys.
  void compare_rows(int first);

  void compare_key(const AnyCache::Stored& key, const Row& row) const;

  void compare_value(const AnyCache::Stored& value, const Row& row) const;

  /// rounding: of an output, relative.
  static void compare_outputs(const Tokens& expected, const std::vector<float>& out, double rounding);

  void compare_scores() const;

  bool evict();

  /// The rows, as they were, that the library kept: known by their positions.
  std::vector<int> kept_rows(int h) const;

  /// One call and its four steps are the same bit for bit.
  void compare_twins(const std::vector<float>& out, const std::vector<float>& whole_out) const;

  Element element_;
  Config c_;
  Options o_;
  Random random_;
  Statistics* statistics_;
  Cache oracle_;
  CachePtr steps_, whole_;
};

}  // namespace oracle
