#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/cos_sin.h"
#include "buzz/finite.h"
#include "buzz/score/query_moments.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"
#include "buzz/sizes.h"

namespace buzz {

/// A rotation, or the mean of several, which is shorter than 1.
struct PairRotation {
  double cos = 0;  ///< of the angle, times the length
  double sin = 0;  ///< as `cos`
};

/// By frequency * position for position = first, first + 1, ...: the mean of `count` rotations. O(1): a geometric sum,
/// sin(count * x) / (count * sin(x)) at x = frequency / 2, turned to the middle.
inline PairRotation mean_of_next(double frequency, double first, int count) {
  double unused, all, one;
  cos_sin(frequency / 2 * count, &unused, &all);
  cos_sin(frequency / 2, &unused, &one);
  const double length = is_zero(one) ? 1 : (std::max)(-1., (std::min)(1., all / (count * one)));
  PairRotation mean;
  cos_sin(frequency * (first + (count - 1) * 0.5), &mean.cos, &mean.sin);
  mean.cos *= length;
  mean.sin *= length;
  return mean;
}

/// The queries that a KV head's group expects: the mean query of each query head, rotated by the mean of the rotations
/// to come. What all its query heads make of a key is their dot product.
class ExpectedQueries {
 public:
  /// Room for the query heads of a KV head.
  void reserve(int group, int dim) {
    group_ = group;
    dim_ = dim;
    queries_.assign(count_of<double>("query_heads * head_dim", {group, dim}), 0);
  }
  /// Of the candidates' head. mean(frequency, position): the mean rotation, where the next token has that position.
  /// O(group * head_dim), and head_dim / 2 means.
  template <class Mean>
  void expect(const Candidates& c, Mean&& mean) {
    for (int g = 0; g < group_; ++g) {
      const int q = c.head * group_ + g;
      const double count = (std::max)(1., c.queries->count(q)), *sum = c.queries->values(q);
      for (int d = 0; d < dim_; ++d) query(g)[d] = sum[d] / count;
    }
    const Rotation* rotation = c.queries->rotation();
    if (rotation == nullptr) return;
    const double next = rotation->compact() ? c.rotated_keys->rows() : c.next_position;
    const double factor = rotation->rope().attention_factor;
    rotation->for_each_pair([&](int i, int a, int b) {
      const PairRotation turn = mean(rotation->frequencies()[static_cast<std::size_t>(i)], next);
      for (int g = 0; g < group_; ++g) {
        double *of = query(g), first = of[a], second = of[b];
        of[a] = factor * (first * turn.cos - second * turn.sin);
        of[b] = factor * (first * turn.sin + second * turn.cos);
      }
    });
  }

  int group() const { return group_; }                                                      ///< query heads
  int dim() const { return dim_; }                                                          ///< of a query
  std::size_t bytes() const { return queries_.size() * sizeof(double); }                    ///< allocated
  double* query(int g) { return queries_.data() + static_cast<std::ptrdiff_t>(g) * dim_; }  ///< [dim]

 private:
  int group_ = 0, dim_ = 0;
  std::vector<double> queries_;  // [group, dim]
};

}  // namespace buzz
