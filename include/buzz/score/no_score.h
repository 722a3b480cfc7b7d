#pragma once

#include <algorithm>

#include "buzz/keep.h"

namespace buzz {

/// Score: every row is worth the same, so that a choice falls on the oldest. For policies that go by index alone.
class NoScore {
 public:
  /// None.
  struct Options {};
  /// @{
  /// As in Mass.
  static constexpr int code = 0;            // in saved files
  using Value = double;                     // of scores()
  static constexpr bool remembers = false;  // has scores between calls: scores(), target()
  static constexpr bool needs_mass = false;
  static constexpr bool needs_rows = false;

  static void check(const Options&) {}
  template <class Archive>
  static void archive(Archive&, const Options&) {}
  NoScore(const Options&, int, int) {}

  void append(int, int) {}
  template <class Rows, class Real>
  void worth(int, int, int count, const std::int32_t*, int, const Rows&, Real* out) const {
    std::fill_n(out, count, Real());
  }
  void compact(const Keep&) {}
  void forget(int) {}
  Span<const Value> scores(int, int) const { return {}; }
  std::size_t bytes() const { return 0; }
  /// @}
};

}  // namespace buzz
