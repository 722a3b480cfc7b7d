#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "buzz/score/standardise.h"
#include "buzz/score/wrapped.h"

namespace buzz {

/// Score: one's plus `weight` times another's, each with mean 0 and deviation 1 over the candidates of its head, so
/// that units do not matter. At most one of the two may be stateful. What is not finite makes its head's NaN,
/// and the choice falls on the oldest rows.
class Sum final : public Wrapped {
 public:
  /// Errors: both are stateful.
  Sum(AnyScore a, AnyScore b, float weight = 1)
      : Wrapped(AnyScore()), weight_(weight), inner_is_first_(b->states() == 0) {
    inner_ = std::move(inner_is_first_ ? a : b);
    other_ = std::move(inner_is_first_ ? b : a);
    if (other_->states() > 0) fail("score", "two that are stateful", "one at most");
  }
  Needs needs() const override { return inner_->needs() | other_->needs(); }
  void reserve(int kv_heads, int capacity) override {
    inner_->reserve(kv_heads, capacity);
    other_->reserve(kv_heads, capacity);
    room_.assign(static_cast<std::size_t>(capacity), 0);
  }
  void reserve_dims(int key_dim, int value_dim) override {
    inner_->reserve_dims(key_dim, value_dim);
    other_->reserve_dims(key_dim, value_dim);
  }
  void reserve_queries(int query_heads) override {
    inner_->reserve_queries(query_heads);
    other_->reserve_queries(query_heads);
  }
  void append(int rows, int tokens) override {
    inner_->append(rows, tokens);
    other_->append(rows, tokens);
  }
  void observe(const View<const float>& sums, bool oldest) override {
    inner_->observe(sums, oldest);
    other_->observe(sums, oldest);
  }
  void importance(const Candidates& c, double* out) override {
    first().importance(c, out);
    second().importance(c, room_.data());
    standardise(out, c.count);
    standardise(room_.data(), c.count);
    for (int i = 0; i < c.count; ++i) out[i] += static_cast<double>(weight_) * room_[static_cast<std::size_t>(i)];
  }
  void keep(const KeptRows& kept) override {
    inner_->keep(kept);
    other_->keep(kept);
  }
  void forget(int end) override {
    inner_->forget(end);
    other_->forget(end);
  }
  int queries_apart() const override { return (std::max)(inner_->queries_apart(), other_->queries_apart()); }
  void step_back() override {
    inner_->step_back();
    other_->step_back();
  }
  std::size_t bytes() const override { return inner_->bytes() + other_->bytes() + room_.size() * sizeof(double); }

 private:
  Score& first() { return inner_is_first_ ? *inner_ : *other_; }
  Score& second() { return inner_is_first_ ? *other_ : *inner_; }

  AnyScore other_;  // the one that may be stateful is the wrapped one
  float weight_;
  bool inner_is_first_;
  std::vector<double> room_;  // [capacity]
};

}  // namespace buzz
