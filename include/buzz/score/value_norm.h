#pragma once

#include <cmath>

#include "buzz/keep.h"
#include "buzz/score/row_sums.h"

namespace buzz {

/// Score: the Euclidean norm of a row's value, as stored: what adds much where it is attended to. It needs no attention
/// probabilities. A value that is not finite has a worth that is not: NaN loses, infinity wins.
class ValueNorm {
 public:
  /// None.
  struct Options {};
  /// @{
  /// As in Mass.
  static constexpr int code = 4;            // in saved files
  using Value = double;                     // of scores()
  static constexpr bool remembers = false;  // has scores between calls: scores(), target()
  static constexpr bool needs_mass = false;
  static constexpr bool needs_rows = true;  // select(keys, values)

  static void check(const Options&) {}
  template <class Archive>
  static void archive(Archive&, const Options&) {}
  ValueNorm(const Options&, int, int) {}

  void append(int, int) {}
  /// values [kv_heads, rows, head_dim]. O(count * head_dim).
  template <class Rows, class Real>
  void worth(int head, int begin, int count, const std::int32_t*, int, const Rows& rows, Real* out) const {
    for (int i = 0; i < count; ++i)
      out[i] = static_cast<float>(std::sqrt(row_sums::squares(rows.values, head, begin + i)));
  }
  void compact(const Keep&) {}
  void forget(int) {}
  Span<const Value> scores(int, int) const { return {}; }
  std::size_t bytes() const { return 0; }
  /// @}
};

}  // namespace buzz
