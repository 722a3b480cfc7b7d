#pragma once

#include <utility>

#include "buzz/score/kinds.h"
#include "buzz/score/wrapped.h"

namespace buzz {

/// Score: another's, of which a row loses `fade` with each `capacity` tokens of its age. What was important once is
/// not so for ever: kept rows of a text long gone cost more than they give (examples/evaluate/README.md).
class Faded final : public Wrapped {
 public:
  /// Of another score, and how fast it fades.
  explicit Faded(AnyScore score, const FadingOptions& o = {}) : Wrapped(std::move(score)), o_(o) {}
  void reserve(int kv_heads, int capacity) override {
    Wrapped::reserve(kv_heads, capacity);
    a_token_ = o_.fade / static_cast<float>(capacity);
  }
  void importance(const Candidates& c, double* out) override {
    inner_->importance(c, out);
    for (int i = 0; i < c.count; ++i) out[i] -= static_cast<double>(a_token_) * (c.age(i) - 1);
  }

 private:
  FadingOptions o_;
  float a_token_ = 0;
};

}  // namespace buzz
