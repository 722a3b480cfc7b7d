#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "buzz/aligned.h"
#include "buzz/finite.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"
#include "buzz/sizes.h"

namespace buzz {

namespace row_sums {
inline namespace BUZZ_ISA {

/// Rows that are taken together, and what the lengths of lines are multiples of, whatever a packet's size.
constexpr int columns = 16;

/// Lines that are added to together.
constexpr int lines = 4;

/// Adds to four lines, [n] each, n a multiple of `columns`, the sum over rows r, [columns, stride], of factors[r][line]
/// * row r.
inline void add_rows(const double* rows, std::ptrdiff_t stride, const double* factors, int n, double* const* line) {
  using namespace Eigen::internal;
  constexpr int packets = 2, step = packets * double_packet_size;
  for (int i = 0; i < n; i += step) {
    DoublePacket sum[lines * packets];
    kernels::unroll<lines * packets>(
        [&](auto k) BUZZ_INLINED { sum[k] = load(line[k / packets] + i + k % packets * double_packet_size); });
    for (int r = 0; r < columns; ++r) {
      DoublePacket row[packets];
      kernels::unroll<packets>([&](auto p)
                                   BUZZ_INLINED { row[p] = load(rows + r * stride + i + p * double_packet_size); });
      kernels::unroll<lines * packets>([&](auto k) BUZZ_INLINED {
        sum[k] = pmadd(pset1<DoublePacket>(factors[r * lines + k / packets]), row[k % packets], sum[k]);
      });
    }
    kernels::unroll<lines * packets>(
        [&](auto k) BUZZ_INLINED { pstoreu(line[k / packets] + i + k % packets * double_packet_size, sum[k]); });
  }
}

/// sums[0..columns) = the sum over i < n of line[i] * of[i], of [n, columns].
inline void combine(const double* line, const double* of, int n, double* sums) {
  using namespace Eigen::internal;
  constexpr int packets = columns / double_packet_size, apart = packets < 8 ? 8 / packets : 1;
  DoublePacket sum[packets * apart];  // eight or more, since each waits for the one before it
  kernels::unroll<packets * apart>([&](auto k) BUZZ_INLINED { sum[k] = pset1<DoublePacket>(0.); });
  const auto add = [&](auto a, int i) BUZZ_INLINED {
    const DoublePacket by = pset1<DoublePacket>(line[i]);
    kernels::unroll<packets>([&](auto p) BUZZ_INLINED {
      DoublePacket& to = sum[a * packets + p];
      to = pmadd(by, load(of + i * columns + p * double_packet_size), to);
    });
  };
  int i = 0;
  for (; i + apart <= n; i += apart) kernels::unroll<apart>([&](auto a) BUZZ_INLINED { add(a, i + a); });
  for (; i < n; ++i) add(std::integral_constant<int, 0>(), i);
  kernels::unroll<packets>([&](auto p) BUZZ_INLINED {
    for (int a = 1; a < apart; ++a) sum[p] = padd(sum[p], sum[a * packets + p]);
    pstoreu(sums + p * double_packet_size, sum[p]);
  });
}

}  // namespace BUZZ_ISA
}  // namespace row_sums

/// A sum A of outer products w x x' of rows x, in double, and then x' (A + lambda I)^-1 x of any, by Cholesky's factor.
/// Rows are taken several at a time: each is written to row() first.
class OuterProducts {
 public:
  /// Room for rows of `dim` numbers. Errors: dim * dim past all memory.
  void reserve(int dim) {
    dim_ = dim;
    stride_ = end(dim);
    rows_.assign(count_of<double>("head_dim * 16", {stride_, columns}), 0);
    columns_ = rows_;
    triangle_.assign(count_of<double>("head_dim * head_dim", {stride_, stride_ + columns}) / 2, 0);
  }
  /// A = 0.
  void clear() {
    waiting_ = 0;
    std::fill(triangle_.begin(), triangle_.end(), 0.);
  }
  /// Where the next row goes, [dim], all of it finite.
  double* row() { return rows_.data() + static_cast<std::ptrdiff_t>(waiting_) * stride_; }
  /// A += weight * x x', x being row(). O(dim^2).
  void add(double weight) {
    weights_[waiting_] = weight;
    if (++waiting_ == columns) add_waiting();
  }
  /// The sum of A's diagonal, of what is above 0 there.
  double trace() {
    add_waiting();
    double sum = 0;
    for (int d = 0; d < dim_; ++d) sum += (std::max)(0., line(d)[d]);
    return sum;
  }
  /// Makes Cholesky's factor of A + lambda I in its place, with the inverse of its diagonal; lambda > 0, A positive
  /// semidefinite. O(dim^3).
  void factorise(double lambda) {
    add_waiting();
    for (int i = 0; i < dim_; ++i) {
      double* of = line(i);
      for (int j = 0; j < i; ++j) of[j] = (of[j] - row_sums::dot(of, line(j), j)) * line(j)[j];
      // Exact pivots are lambda at least.
      of[i] = 1 / std::sqrt((std::max)(lambda, of[i] + lambda - row_sums::dot(of, of, i)));
    }
  }
  /// After factorise(): *out *= x' (A + lambda I)^-1 x, x being row(), by the next solve(). O(dim^2).
  void multiply(double* out) {
    outs_[waiting_] = out;
    if (++waiting_ == columns) solve();
  }
  /// What waits for it is multiplied.
  void solve() {
    double sums[columns], squares[columns] = {};
    for (int d = 0; d < dim_; ++d) {
      double* x = columns_.data() + static_cast<std::ptrdiff_t>(d) * columns;
      row_sums::combine(line(d), columns_.data(), d, sums);
      for (int r = 0; r < waiting_; ++r) {
        x[r] = (rows_.data()[r * stride_ + d] - sums[r]) * line(d)[d];
        squares[r] += x[r] * x[r];
      }
    }
    for (int r = 0; r < waiting_; ++r) *outs_[r] *= squares[r];
    waiting_ = 0;
  }
  /// Allocated.
  std::size_t bytes() const { return (triangle_.size() + rows_.size() + columns_.size()) * sizeof(double); }

 private:
  static constexpr int columns = row_sums::columns, lines = row_sums::lines;

  /// Numbers of a line or row of n, a multiple of `columns`.
  static int end(int n) { return (n + columns - 1) / columns * columns; }
  double* line(int d) {
    const std::ptrdiff_t whole = d / columns, rest = d % columns;  // of lines that are as long as line d
    return triangle_.data() + whole * (whole + 1) / 2 * columns * columns + rest * (whole + 1) * columns;
  }

  void add_waiting() {
    if (waiting_ == 0) return;
    std::fill(row(), rows_.data() + rows_.size(), 0.);
    std::fill(weights_ + waiting_, weights_ + columns, 0.);
    waiting_ = 0;
    double factors[columns * lines];
    for (int d = 0; d < dim_; d += lines) {
      double* of[lines];
      for (int l = 0; l < lines; ++l) {
        of[l] = line(d + l);
        for (int r = 0; r < columns; ++r) factors[r * lines + l] = weights_[r] * rows_.data()[r * stride_ + d + l];
      }
      row_sums::add_rows(rows_.data(), stride_, factors, end(d + 1), of);
    }
  }

  int dim_ = 0, stride_ = 0;       // numbers of a row, and of its room
  int waiting_ = 0;                // rows
  std::vector<double> triangle_;   // line d has d + 1 numbers, and what follows up to a multiple of 16
  AlignedVector<double> rows_;     // [16, dim]: those that wait
  AlignedVector<double> columns_;  // [dim, 16]: what solve() makes of them
  double weights_[columns] = {};   // of those that wait for add()
  double* outs_[columns] = {};     // of those that wait for solve()
};

/// Reads a row, [dim], as doubles. Is it finite?
inline bool read_row(const FloatRows& rows, int head, int r, double* to) {
  float block[max_dims];
  double squares = 0;
  for (int d = 0, dim = rows.dim(); d < dim; d += max_dims) {
    const int n = (std::min)(max_dims, dim - d);
    const float* from = rows.read(head, r, 1, d, n, block).data;
    squares += row_sums::squares(from, n);
    std::copy_n(from, n, to + d);
  }
  return is_finite(squares);
}

}  // namespace buzz
