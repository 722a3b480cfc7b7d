#pragma once

#include <algorithm>
#include <cmath>

#include "buzz/score/kinds.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: the Euclidean norm of a row's value, as stored: what adds much where it is attended to. A value that is not
/// finite has a norm that is not: NaN loses, infinity wins.
class ValueNorm final : public Score {
 public:
  Needs needs() const override { return needs_of(ValueNormOptions()); }
  /// O(count * head_dim).
  void importance(const Candidates& c, double* out) override {
    std::fill_n(out, c.count, 0.);
    for (int d = 0, dim = c.values->dim(); d < dim; d += max_dims) {
      const int n = (std::min)(max_dims, dim - d);
      for_each_row(*c.values, c.head, c.first, c.first + c.count, d, n,
                   [&](int r, const float* value) { out[r - c.first] += row_sums::squares(value, n); });
    }
    for (int i = 0; i < c.count; ++i) out[i] = static_cast<double>(static_cast<float>(std::sqrt(out[i])));
  }
};

}  // namespace buzz
