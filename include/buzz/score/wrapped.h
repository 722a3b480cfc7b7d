#pragma once

#include <utility>

#include "buzz/score/any_score.h"

namespace buzz {

/// Score: another's, told all that it is told.
class Wrapped : public Score {
 public:
  /// Of another score.
  explicit Wrapped(AnyScore inner) : inner_(std::move(inner)) {}
  Needs needs() const override { return inner_->needs(); }
  void reserve(int kv_heads, int capacity) override { inner_->reserve(kv_heads, capacity); }
  void reserve_dims(int key_dim, int value_dim) override { inner_->reserve_dims(key_dim, value_dim); }
  void reserve_queries(int query_heads) override { inner_->reserve_queries(query_heads); }
  void append(int rows, int tokens) override { inner_->append(rows, tokens); }
  void observe(const View<const float>& sums, bool first) override { inner_->observe(sums, first); }
  void keep(const KeptRows& kept) override { inner_->keep(kept); }
  void forget(int end) override { inner_->forget(end); }
  int queries_apart() const override { return inner_->queries_apart(); }
  int states() const override { return inner_->states(); }
  RowNumbers state(int i, int head) override { return inner_->state(i, head); }
  RowNumbers changes(int head) override { return inner_->changes(head); }
  void step_back() override { inner_->step_back(); }
  const double* scores(int head) const override { return inner_->scores(head); }
  std::size_t bytes() const override { return inner_->bytes(); }

 protected:
  AnyScore inner_;  ///< the other
};

}  // namespace buzz
