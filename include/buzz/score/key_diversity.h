#pragma once

#include <algorithm>
#include <cmath>

#include "buzz/keep.h"
#include "buzz/packet.h"

namespace buzz {

/// Score: minus the cosine of a row's key with the mean of its head's keys (all rows of the cache, as stored): what is
/// unlike the rest is worth keeping. It needs no attention probabilities, so it works beside flash attention. After
/// KeyDiff (arXiv 2504.15364). A zero key or a zero mean gives 0. A key that is not finite makes its head's scores
/// NaN, and the choice falls on the oldest rows.
class KeyDiversity {
 public:
  struct Options {};
  static constexpr int code = 3;            // in saved files
  static constexpr bool remembers = false;  // has scores between calls: scores(), row()
  static constexpr bool needs_mass = false;
  static constexpr bool needs_rows = true;  // select(keys, values)

  static void check(const Options&) {}
  template <class Archive>
  static void archive(Archive&, const Options&) {}
  KeyDiversity(const Options&, int, int) {}

  void append(int, int) {}

  /// keys [kv_heads, rows, head_dim]. O(rows * head_dim).
  template <class Rows>
  void worth(int head, int begin, int count, const std::int32_t*, int, const Rows& rows, float* out) const {
    const auto& keys = rows.keys.values;
    const auto stored = [&](int row, int d) {
      const double code_value = kernels::to_float(keys.row(head, row)[d]);
      return rows.keys.scales.empty() ? code_value : code_value * rows.keys.scales.row(0, head)[row];
    };
    const int all = keys.shape(1), dim = keys.shape(2);
    // Keys are measured by the largest of their head's values, so that no product overflows.
    double largest = 0;
    for (int r = 0; r < all; ++r)
      for (int d = 0; d < dim; ++d) largest = (std::max)(largest, std::abs(stored(r, d)));
    const double unit = largest == 0 ? 0 : 1 / largest;
    const auto value = [&](int row, int d) { return stored(row, d) * unit; };
    // The mean is made and used in blocks of a cache line's elements, so that no buffer of head_dim is needed.
    constexpr int block = 16;
    double mean_norm = 0;
    std::fill_n(out, count, 0.f);
    for (int d = 0; d < dim; d += block) {
      const int n = (std::min)(block, dim - d);
      double mean[block] = {};
      for (int r = 0; r < all; ++r)
        for (int j = 0; j < n; ++j) mean[j] += value(r, d + j);
      for (int j = 0; j < n; ++j) {
        mean[j] /= all;
        mean_norm += mean[j] * mean[j];
      }
      for (int i = 0; i < count; ++i) {
        double dot = 0;
        for (int j = 0; j < n; ++j) dot += mean[j] * value(begin + i, d + j);
        out[i] += static_cast<float>(dot);
      }
    }
    for (int i = 0; i < count; ++i) {
      double norm = 0;
      for (int d = 0; d < dim; ++d) norm += value(begin + i, d) * value(begin + i, d);
      const double length = std::sqrt(norm * mean_norm);
      out[i] = length == 0 ? 0.f : static_cast<float>(-out[i] / length);
    }
  }

  void compact(const Keep&) {}
  void forget(int) {}
  Span<const float> scores(int, int) const { return {}; }
  std::size_t bytes() const { return 0; }
};

}  // namespace buzz
