#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "buzz/finite.h"
#include "buzz/score/expected_queries.h"
#include "buzz/score/kinds.h"
#include "buzz/score/row_sums.h"
#include "buzz/score/score.h"
#include "buzz/score/standardise.h"
#include "buzz/sizes.h"

namespace buzz {

/// Score: how well a key suits the queries at distances to come (TriAttention, arXiv 2604.04921). Each query head's
/// mean query, of all tokens behind the sink, is rotated by the mean of the rotations to 17 positions, from the next
/// one to the one `reach` ahead, each farther by the same factor; a key's logit is their dot product. Each pair that
/// the Rope rotates together adds the key's length times what the mean of the queries' lengths has over the length of
/// their mean: what is left where their directions are spread. Logits have mean 0 and deviation 1 over the candidates,
/// and the importance is their maximum over the KV head's query heads. In compact positions the next ones are those
/// behind the newest row's place. It needs queries and no probabilities, so it works beside flash kernels. A row that
/// is not finite has NaN, and is no row to the others.
class TriAttention final : public Score {
 public:
  /// Of its options.
  explicit TriAttention(const TriOptions& o = {}) {
    for (int i = 0; i < offsets; ++i) ahead_[i] = std::pow(o.reach, static_cast<double>(i) / (offsets - 1));
  }
  Needs needs() const override { return needs_of(TriOptions()); }
  void reserve(int kv_heads, int capacity) override {
    heads_ = kv_heads;
    capacity_ = capacity;
  }
  void reserve_dims(int key_dim, int) override { dim_ = key_dim; }
  void reserve_queries(int query_heads) override {
    expected_.reserve(query_heads / heads_, dim_);
    spread_.assign(count_of<double>("query_heads * head_dim", {expected_.group(), dim_}), 0);
    logits_.assign(count_of<double>("query_heads * capacity", {expected_.group(), capacity_}), 0);
    key_.assign(2 * static_cast<std::size_t>(dim_), 0);
  }
  /// O(query heads of the group * count * head_dim).
  void importance(const Candidates& c, double* out) override {
    expected_.expect(c, [&](double frequency, double next) { return mean_ahead(frequency, next); });
    for (int g = 0; g < expected_.group(); ++g) measure_spread(*c.queries, c.head * expected_.group() + g, spread(g));
    for (int i = 0; i < c.count; ++i) {
      float* lengths = key_.data() + dim_;
      const float* key = c.rotated_keys->read(c.head, c.first + i, 1, 0, dim_, key_.data()).data;
      pair_lengths(c.queries->rotation(), key, dim_, lengths);
      for (int g = 0; g < expected_.group(); ++g) {
        double& logit = logits(g)[i];
        logit = row_sums::dot(key, expected_.query(g), dim_) + row_sums::dot(lengths, spread(g), dim_);
        if (!is_finite(logit)) put_nan(&logit);
      }
    }
    for (int g = 0; g < expected_.group(); ++g) {
      standardise_finite(logits(g), c.count);
      // A float hides in which order the sums were made.
      for (int i = 0; i < c.count; ++i) {
        const double x = static_cast<double>(static_cast<float>(logits(g)[i]));
        out[i] = g == 0 || !is_finite(x) ? x : (std::max)(x, out[i]);
      }
    }
  }
  std::size_t bytes() const override {
    return expected_.bytes() + (spread_.size() + logits_.size()) * sizeof(double) + key_.size() * sizeof(float);
  }

 private:
  static constexpr int offsets = 17;

  /// The mean rotation to positions ahead of the newest one.
  PairRotation mean_ahead(double frequency, double next) const {
    PairRotation mean;
    for (const double ahead : ahead_) {
      double cos, sin;
      cos_sin(frequency * (next - 1 + ahead), &cos, &sin);
      mean.cos += cos / offsets;
      mean.sin += sin / offsets;
    }
    return mean;
  }
  /// What the pairs of a query head's queries are longer than those of their mean, on average.
  void measure_spread(const QueryMoments& queries, int query_head, double* out) const {
    const double count = (std::max)(1., queries.count(query_head));
    const double *values = queries.values(query_head), *lengths = queries.lengths(query_head);
    for (int d = 0; d < dim_; ++d) out[d] = (std::max)(0., lengths[d] - std::abs(values[d])) / count;
    const Rotation* rotation = queries.rotation();
    if (rotation == nullptr) return;
    const double factor = rotation->rope().attention_factor;
    rotation->for_each_pair([&](int, int a, int b) {
      const double mean = std::sqrt(values[a] * values[a] + values[b] * values[b]);
      out[a] = factor * (std::max)(0., lengths[a] - mean) / count;
      out[b] = 0;
    });
  }
  double* spread(int g) { return spread_.data() + static_cast<std::ptrdiff_t>(g) * dim_; }
  double* logits(int g) { return logits_.data() + static_cast<std::ptrdiff_t>(g) * capacity_; }

  double ahead_[offsets] = {};  // the positions
  int heads_ = 0, capacity_ = 0, dim_ = 0;
  ExpectedQueries expected_;
  std::vector<double> spread_;  // [group, head_dim]
  std::vector<double> logits_;  // [group, capacity]
  std::vector<float> key_;      // [2, head_dim]: a key, and its pairs' lengths
};

}  // namespace buzz
