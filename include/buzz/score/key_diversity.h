#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/finite.h"
#include "buzz/keep.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_sums.h"

namespace buzz {

/// Score: how unlike the mean of its head's keys, as stored, a row's key is: what is unlike the rest is worth keeping.
/// It needs no attention probabilities, so it works beside flash attention. The cosine of a zero key or a zero mean is
/// 0. A key that is not finite, among those of the mean, makes its head's scores NaN, and the choice falls on the
/// oldest rows.
class KeyDiversity {
 public:
  using Options = DiversityOptions;  ///< how keys are compared, and with which
  /// @{
  /// As in Mass.
  static constexpr int code = 3;            // in saved files
  using Value = double;                     // of scores()
  static constexpr bool remembers = false;  // has scores between calls: scores(), target()
  static constexpr bool needs_mass = false;
  static constexpr bool needs_rows = true;  // select(keys, values)

  static void check(const Options& o) { buzz::check(o); }
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    a.same("unlike", static_cast<int>(o.unlike));
    a.same("mean_over", static_cast<int>(o.mean_over));
  }
  KeyDiversity(const Options& o, int, int capacity)
      : o_(o), squares_(static_cast<std::size_t>(capacity)), sums_(static_cast<std::size_t>(capacity)) {}

  void append(int, int) {}

  /// keys [kv_heads, rows, head_dim]. O(rows * head_dim).
  template <class Rows, class Real>
  void worth(int head, int begin, int count, const std::int32_t*, int, const Rows& rows, Real* out) {
    using row_sums::block;
    const int dim = rows.keys.values.shape(2);
    const int first = o_.mean_over == MeanOver::all ? 0 : begin;
    const int end = o_.mean_over == MeanOver::all ? rows.keys.values.shape(1) : begin + count;
    const bool directions = o_.unlike == Unlike::direction, distances = o_.unlike == Unlike::distance;
    float room[block];
    if (!distances)
      for (int r = directions ? (std::min)(first, begin) : begin; r < (directions ? end : begin + count); ++r)
        squares(r) = row_sums::squares(rows.keys, head, r);
    std::fill_n(sums_.data(), count, 0.);
    double mean_squares = 0;
    for (int d = 0; d < dim; d += block) {
      const int n = (std::min)(block, dim - d);
      double mean[block] = {};
      for (int r = first; r < end; ++r)
        row_sums::add(row_sums::read(rows.keys, head, r, d, n, room), n, directions ? inverse_norm(r) : 1, mean);
      for (int j = 0; j < n; ++j) {
        mean[j] /= end - first;
        mean_squares += mean[j] * mean[j];
      }
      for (int i = 0; i < count; ++i) {
        const float* key = row_sums::read(rows.keys, head, begin + i, d, n, room);
        sums_[static_cast<std::size_t>(i)] +=
            distances ? row_sums::distance(key, mean, n) : row_sums::dot(key, mean, n);
      }
    }
    for (int i = 0; i < count; ++i) {
      const double sum = sums_[static_cast<std::size_t>(i)];
      const double length = distances ? 0 : std::sqrt(squares(begin + i)) * std::sqrt(mean_squares);
      out[i] = static_cast<float>(distances ? std::sqrt(sum) : is_zero(length) ? 0 : -sum / length);
    }
  }

  void compact(const Keep&) {}
  void forget(int) {}
  Span<const Value> scores(int, int) const { return {}; }
  std::size_t bytes() const { return (squares_.size() + sums_.size()) * sizeof(double); }
  /// @}

 private:
  double& squares(int row) { return squares_[static_cast<std::size_t>(row)]; }
  double inverse_norm(int row) { return is_zero(squares(row)) ? 0 : 1 / std::sqrt(squares(row)); }

  Options o_;
  std::vector<double> squares_;  // [capacity], of the rows' keys
  std::vector<double> sums_;     // [capacity], of the middle rows: dot with the mean, or squared distance from it
};

}  // namespace buzz
