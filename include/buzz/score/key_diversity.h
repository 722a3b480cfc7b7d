#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/finite.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: how unlike the mean of its head's keys, as stored, a row's key is: what is unlike the rest is important.
/// It needs no attention, so it works beside flash kernels. The cosine of a zero key or a zero mean is 0. A key that is
/// not finite, among those of the mean, makes its head's scores NaN, and the choice falls on the oldest rows.
class KeyDiversity final : public Score {
 public:
  /// Of its options.
  explicit KeyDiversity(const DiversityOptions& o = {}) : o_(o) {}
  Needs needs() const override { return needs_of(o_); }
  void reserve(int, int capacity) override {
    squares_.assign(static_cast<std::size_t>(capacity), 0);
    sums_.assign(static_cast<std::size_t>(capacity), 0);
  }
  /// O(rows * head_dim).
  void importance(const Candidates& c, double* out) override {
    const FloatRows& keys = *c.keys;
    const bool all = o_.mean_over == MeanOver::all;
    const bool directions = o_.unlike == Unlike::direction, distances = o_.unlike == Unlike::distance;
    const int last = c.first + c.count, first = all ? 0 : c.first, end = all ? keys.rows() : last, dim = keys.dim();
    if (!distances) square(keys, c.head, directions ? first : c.first, directions ? end : last);
    std::fill_n(sums_.data(), c.count, 0.);
    double mean_squares = 0;
    for (int d = 0; d < dim; d += max_dims) {
      const int n = (std::min)(max_dims, dim - d);
      double mean[max_dims] = {};
      for_each_row(keys, c.head, first, end, d, n,
                   [&](int r, const float* key) { row_sums::add(key, n, directions ? inverse_norm(r) : 1, mean); });
      for (int j = 0; j < n; ++j) {
        mean[j] /= end - first;
        mean_squares += mean[j] * mean[j];
      }
      for_each_row(keys, c.head, c.first, last, d, n, [&](int r, const float* key) {
        sums_[index(r - c.first)] += distances ? row_sums::distance(key, mean, n) : row_sums::dot(key, mean, n);
      });
    }
    for (int i = 0; i < c.count; ++i) {
      const double sum = sums_[index(i)];
      const double length = distances ? 0 : std::sqrt(squares_[index(c.first + i)]) * std::sqrt(mean_squares);
      // A float hides in which order the sums were made.
      out[i] = static_cast<double>(static_cast<float>(distances         ? std::sqrt(sum)
                                                      : is_zero(length) ? 0
                                                                        : -sum / length));
    }
  }
  std::size_t bytes() const override { return (squares_.size() + sums_.size()) * sizeof(double); }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  double inverse_norm(int r) const { return is_zero(squares_[index(r)]) ? 0 : 1 / std::sqrt(squares_[index(r)]); }
  void square(const FloatRows& keys, int head, int first, int end) {
    std::fill(squares_.begin() + first, squares_.begin() + end, 0.);
    for (int d = 0, dim = keys.dim(); d < dim; d += max_dims) {
      const int n = (std::min)(max_dims, dim - d);
      for_each_row(keys, head, first, end, d, n,
                   [&](int r, const float* key) { squares_[index(r)] += row_sums::squares(key, n); });
    }
  }

  DiversityOptions o_;
  std::vector<double> squares_;  // [capacity], of the rows' keys
  std::vector<double> sums_;     // [capacity], of the candidates: dot with the mean, or squared distance from it
};

}  // namespace buzz
