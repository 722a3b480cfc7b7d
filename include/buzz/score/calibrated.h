#pragma once

#include <algorithm>
#include <cmath>

#include "buzz/finite.h"
#include "buzz/score/calibration.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_scores.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"

namespace buzz {

/// Score: a row's un-rotated key and its value by the weights that a Calibration has of its layer and head, as they are
/// when the row is first asked about: made once. They foretell the logarithm of the highest attention that the row will
/// get; `power` above 0 makes of it the attention to that power, so that sums over heads weigh those that look sharply.
/// It needs no attention, so it works beside flash kernels. A row that is not finite, or whose sum is none that a float
/// has, has NaN.
///
/// With `trail` a row's number is a mean along the text: exp(-distance / trail) parts of the number of the row before
/// it, distances in positions, the rest its own, both to `power`. What is said of something follows its name, and is of
/// no use without the words between. Rows are asked about as they come, so that the row before is there.
class Calibrated final : public Score {
 public:
  /// Of its options.
  explicit Calibrated(const WeightsOptions& o) : o_(o) {}
  Needs needs() const override { return needs_of(o_); }
  /// Errors: no calibration; a layer that is not said or has no weights; another number of heads.
  void reserve(int kv_heads, int capacity) override {
    if (o_.weights == nullptr) fail("weights", "none", "the model's: see load_calibration()");
    const CalibratedModel& m = o_.weights->model();
    layer_ = m.layers == 1 ? (std::max)(o_.layer, 0) : o_.layer;
    if (!o_.weights->has(layer_))
      fail("layer", layer_, "one that has weights (" + std::to_string(m.layers) + " layers; see Policy::for_layer)");
    require_equal("weights.kv_heads", m.kv_heads, kv_heads, "kv_heads of the layer");
    heads_ = kv_heads;
    numbers_ = RowScores<float>(kv_heads, capacity);
  }
  /// Errors: other sizes than the calibration's.
  void reserve_dims(int key_dim, int value_dim) override {
    require_equal("weights.key_dim", o_.weights->model().key_dim, key_dim, "head_dim of the layer");
    require_equal("weights.value_dim", o_.weights->model().value_dim, value_dim, "value_dim of the layer");
  }
  void append(int rows, int tokens) override {
    float nan;
    put_nan(&nan);
    for (int h = 0; h < heads_; ++h) std::fill_n(numbers_.head(h) + rows, tokens, nan);
  }
  /// O(head_dim + value_dim) for a row that it has not been asked about, else O(1).
  void importance(const Candidates& c, double* out) override {
    float* numbers = numbers_.head(c.head);
    const bool trails = o_.trail > 0;  // then of all rows, while the row before each is there
    const int end = c.first + c.count, made = trails ? c.values->rows() : end;
    for (int r = trails ? 0 : c.first; r < made; ++r) {
      if (!is_nan(numbers[r])) continue;
      numbers[r] = number(c, r);
      if (trails && r > 0) numbers[r] = trailing(numbers[r - 1], numbers[r], c.positions[r] - c.positions[r - 1], o_);
    }
    const double power = static_cast<double>(o_.power);
    for (int r = c.first; r < end; ++r) {
      const double x = static_cast<double>(numbers[r]);
      *out++ = power > 0 ? std::exp(power * x) : x;
    }
  }
  /// A row's number behind the number `before` of the row that is so many positions before it; either may be NaN.
  static float trailing(float before, float own, int distance, const WeightsOptions& o) {
    if (is_nan(before) || is_nan(own)) return own;
    const double a = static_cast<double>(before), b = static_cast<double>(own), power = static_cast<double>(o.power),
                 share = std::exp(-distance / static_cast<double>(o.trail));
    if (!(power > 0)) return static_cast<float>(share * a + (1 - share) * b);
    const double most = (std::max)(a, b);  // exp() has room for what is left
    return static_cast<float>(
        most + std::log(share * std::exp(power * (a - most)) + (1 - share) * std::exp(power * (b - most))) / power);
  }
  void keep(const KeptRows& kept) override { numbers_.compact(kept); }
  int states() const override { return 1; }
  RowNumbers state(int, int head) override { return RowNumbers::any(numbers_.head(head)); }
  RowNumbers changes(int) override { return {}; }
  std::size_t bytes() const override { return numbers_.bytes(); }

 private:
  float number(const Candidates& c, int row) const {
    const float* weights = o_.weights->weights(layer_, c.head);
    double sum = 0;
    for (const FloatRows* x : {c.unrotated_keys, c.values}) {
      sum += dot(*x, c.head, row, weights);
      weights += x->dim();
    }
    float number = static_cast<float>(sum + static_cast<double>(*weights));  // a float hides in which order it was made
    if (!is_finite(number)) put_nan(&number);
    return number;
  }
  static double dot(const FloatRows& rows, int head, int row, const float* weights) {
    float room[max_dims];
    double sum = 0;
    for (int d = 0; d < rows.dim(); d += max_dims) {
      const int n = (std::min)(max_dims, rows.dim() - d);
      sum += row_sums::dot(rows.read(head, row, 1, d, n, room).data, weights + d, n);
    }
    return sum;
  }

  WeightsOptions o_;
  int layer_ = -1, heads_ = 0;
  RowScores<float> numbers_{0, 0};  // [kv_heads, capacity]; NaN: not made yet
};

}  // namespace buzz
