#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "buzz/finite.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"

namespace buzz {

namespace row_sums {
inline namespace BUZZ_ISA {

/// low[i] and high[i] become the least and the most of them and x[i], [n], all finite.
inline void widen(const float* x, int n, float* low, float* high) {
  using namespace Eigen::internal;
  using kernels::Packet;
  constexpr int width = kernels::packet_size;
  int i = 0;
  for (; i + width <= n; i += width) {
    const Packet p = kernels::load(x + i);
    pstoreu(low + i, pmin(p, kernels::load(low + i)));
    pstoreu(high + i, pmax(p, kernels::load(high + i)));
  }
  for (; i < n; ++i) {
    low[i] = (std::min)(low[i], x[i]);
    high[i] = (std::max)(high[i], x[i]);
  }
}
/// out[i] = (x[i] - low[i]) * by[i], [n]; returns their sum.
inline double scale(const float* x, const float* low, const double* by, int n, double* out) {
  using namespace Eigen::internal;
  return sum(
      n,
      [=](int i, const DoublePacket& to) {
        const DoublePacket p = pmul(psub(load(x + i), load(low + i)), load(by + i));
        pstoreu(out + i, p);
        return padd(p, to);
      },
      [=](int i) { return out[i] = (static_cast<double>(x[i]) - static_cast<double>(low[i])) * by[i]; });
}
/// The sum of the squares of x[i] - mean, [n].
inline double squares_off(const double* x, double mean, int n) {
  using namespace Eigen::internal;
  const DoublePacket all = pset1<DoublePacket>(mean);
  return sum(
      n,
      [&](int i, const DoublePacket& to) {
        const DoublePacket p = psub(load(x + i), all);
        return pmadd(p, p, to);
      },
      [&](int i) { return (x[i] - mean) * (x[i] - mean); });
}

}  // namespace BUZZ_ISA
}  // namespace row_sums

/// Score: how widely a row's numbers spread once the rows after it are the measure (LagKV, arXiv 2504.04704). Rows
/// behind the sink are cut into blocks of `lag`. The next `lag` rows, where fewer are left the newest so many, have a
/// minimum and a maximum in each dimension; a block's rows are scaled by them to what lies between 0 and 1, by 0 where
/// both are the same. Deviations over a row's dimensions go through a softmax over the block. The importance is what
/// that gives to the key and to the value, both as stored. It needs no attention, so it works beside flash
/// kernels. A row that is not finite has NaN and no part in the softmax; a number that is not is no minimum or maximum.
class LagKv final : public Score {
 public:
  /// Of its options.
  explicit LagKv(const LagOptions& o = {}) : o_(o) {}
  Needs needs() const override { return needs_of(o_); }
  void reserve(int, int capacity) override { room_.assign(2 * index((std::min)(o_.lag, capacity)), 0); }
  /// O(rows * (head_dim + value_dim)).
  void importance(const Candidates& c, double* out) override {
    const int rows = c.keys->rows(), last = c.first + c.count, lag = (std::min)(o_.lag, rows);
    std::fill_n(out, c.count, 0.);
    for (int first = c.first, end = 0; first < last; first = end) {
      end = rows - first < lag ? rows : first + lag;
      const int next = rows - end < lag ? rows - lag : end, asked = (std::min)(end, last) - first;
      for (const FloatRows* x : {c.keys, c.values}) {
        spread(*x, c.head, first, end, next, next + lag);
        soften(end - first, x->dim());
        for (int i = 0; i < asked; ++i) out[first - c.first + i] += squares()[i];
      }
    }
    row_sums::round(out, c.count);
  }
  std::size_t bytes() const override { return room_.size() * sizeof(double); }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  /// Of a block's rows.
  double* means() { return room_.data(); }
  double* squares() { return room_.data() + room_.size() / 2; }  // later what they add to the importance
  /// Of each of rows [first, end): the mean of its scaled numbers, and the sum of the squares of what they are off it.
  void spread(const FloatRows& x, int head, int first, int end, int next, int next_end) {
    for (int d = 0, dim = x.dim(); d < dim; d += max_dims) {
      const int n = (std::min)(max_dims, dim - d);
      constexpr float most = (std::numeric_limits<float>::max)();
      float low[max_dims], high[max_dims];
      double scale[max_dims];
      std::fill_n(low, n, most);
      std::fill_n(high, n, -most);
      for_each_row(x, head, next, next_end, d, n, [&](int, const float* row) {
        if (is_finite(row_sums::squares(row, n))) return row_sums::widen(row, n, low, high);
        for (int j = 0; j < n; ++j)
          if (is_finite(row[j])) row_sums::widen(row + j, 1, low + j, high + j);
      });
      for (int j = 0; j < n; ++j)
        scale[j] = low[j] < high[j] ? 1 / (static_cast<double>(high[j]) - static_cast<double>(low[j])) : 0;
      for_each_row(x, head, first, end, d, n, [&](int r, const float* row) {
        double scaled[max_dims];
        const double mean = row_sums::scale(row, low, scale, n, scaled) / n;
        add(r - first, d, n, mean, row_sums::squares_off(scaled, mean, n));
      });
    }
  }
  /// `n` more numbers of a row of which there were `before`.
  void add(int row, int before, int n, double mean, double off_it) {
    double &its_mean = means()[row], &its_squares = squares()[row];
    if (before == 0) its_mean = its_squares = 0;
    const double off = mean - its_mean, part = static_cast<double>(n) / (before + n);
    its_mean += off * part;
    its_squares += off_it + off * off * part * before;
  }
  /// squares() become the softmax of `count` deviations over `dim` numbers.
  void soften(int count, int dim) {
    double largest = 0, total = 0;
    for (int i = 0; i < count; ++i) {
      double& x = squares()[i];
      x = std::sqrt(x / dim);
      if (is_finite(x)) largest = (std::max)(largest, x);
    }
    for (int i = 0; i < count; ++i)
      if (is_finite(squares()[i])) total += std::exp(squares()[i] - largest);
    float nan;
    put_nan(&nan);
    for (int i = 0; i < count; ++i) {
      double& x = squares()[i];
      x = is_finite(x) ? std::exp(x - largest) / total : static_cast<double>(nan);
    }
  }

  LagOptions o_;
  std::vector<double> room_;  // [2, min(lag, capacity)]
};

}  // namespace buzz
