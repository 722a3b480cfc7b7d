#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "buzz/score/mixed.h"
#include "buzz/value/any_score.h"

namespace buzz {
namespace value {

/// Score: another's, told all that it is told.
class Wrapped : public Score {
 public:
  explicit Wrapped(AnyScore inner) : inner_(std::move(inner)) {}
  Needs needs() const override { return inner_->needs(); }
  void reserve(int kv_heads, int capacity) override { inner_->reserve(kv_heads, capacity); }
  void append(int rows, int tokens) override { inner_->append(rows, tokens); }
  void observe(const View<const float>& sums, bool first) override { inner_->observe(sums, first); }
  void keep(const Keep& kept) override { inner_->keep(kept); }
  void forget(int end) override { inner_->forget(end); }
  int queries_apart() const override { return inner_->queries_apart(); }
  void options(OptionVisitor& v) override { inner_->options(v); }
  void check() const override { inner_->check(); }
  int memories() const override { return inner_->memories(); }
  RowNumbers memory(int i, int head) override { return inner_->memory(i, head); }
  RowNumbers changes(int head) override { return inner_->changes(head); }
  void step_back() override { inner_->step_back(); }
  const double* scores(int head) const override { return inner_->scores(head); }
  std::size_t bytes() const override { return inner_->bytes(); }

 protected:
  AnyScore inner_;  ///< the other
};

/// Score: another's, of which a row loses `fade` with each `capacity` tokens of its age. What was worth keeping once is
/// not so for ever: kept rows of a text long gone cost more than they give (examples/evaluate/README.md).
class Faded final : public Wrapped {
 public:
  explicit Faded(AnyScore score, const FadingOptions& o = {}) : Wrapped(std::move(score)), o_(o) {}
  void options(OptionVisitor& v) override {
    Wrapped::options(v);
    v.real(
        "fade", o_.fade, [](double x) { return x >= 0 && x <= 3.4e38; }, "finite and >= 0",
        "importance that a row loses with each `capacity` tokens of its age");
  }
  void check() const override {
    Wrapped::check();
    buzz::check(o_);
  }
  int code() const override { return 2000000 + inner_->code(); }
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

/// Score: one's plus `weight` times another's, each with mean 0 and deviation 1 over the candidates of its head, so
/// that units do not matter. At most one of the two may remember something. What is not finite makes its head's NaN,
/// and the choice falls on the oldest rows.
class Sum final : public Wrapped {
 public:
  /// Errors: both remember something.
  Sum(AnyScore a, AnyScore b, float weight = 1) : Sum(remembers(b), std::move(a), std::move(b), weight) {}
  Needs needs() const override { return inner_->needs() | other_->needs(); }
  void options(OptionVisitor& v) override {
    first().options(v);
    second().options(v);
    v.real(
        "weight", weight_, [](double x) { return x >= -3.4e38 && x <= 3.4e38; }, "finite", "of the second score");
  }
  void check() const override {
    inner_->check();
    other_->check();
    if (!is_finite(weight_)) fail("weight", std::to_string(weight_), "finite");
  }
  int code() const override { return 10000 + 100 * first().code() + second().code(); }
  void reserve(int kv_heads, int capacity) override {
    inner_->reserve(kv_heads, capacity);
    other_->reserve(kv_heads, capacity);
    room_.assign(static_cast<std::size_t>(capacity), 0);
  }
  void append(int rows, int tokens) override {
    inner_->append(rows, tokens);
    other_->append(rows, tokens);
  }
  void importance(const Candidates& c, double* out) override {
    first().importance(c, out);
    second().importance(c, room_.data());
    standardise(out, c.count);
    standardise(room_.data(), c.count);
    for (int i = 0; i < c.count; ++i) out[i] += static_cast<double>(weight_) * room_[static_cast<std::size_t>(i)];
  }
  void keep(const Keep& kept) override {
    inner_->keep(kept);
    other_->keep(kept);
  }
  void forget(int end) override {
    inner_->forget(end);
    other_->forget(end);
  }
  std::size_t bytes() const override { return inner_->bytes() + other_->bytes() + room_.size() * sizeof(double); }

 private:
  /// The one that may remember is the wrapped one.
  Sum(bool swapped, AnyScore a, AnyScore b, float weight)
      : Wrapped(swapped ? std::move(b) : std::move(a)),
        other_(swapped ? std::move(a) : std::move(b)),
        weight_(weight),
        inner_is_first_(!swapped) {
    if (remembers(other_)) fail("score", "two that remember something", "one at most");
  }
  static bool remembers(const AnyScore& s) { return s->memories() > 0; }

  Score& first() { return inner_is_first_ ? *inner_ : *other_; }
  Score& second() { return inner_is_first_ ? *other_ : *inner_; }
  const Score& first() const { return inner_is_first_ ? *inner_ : *other_; }
  const Score& second() const { return inner_is_first_ ? *other_ : *inner_; }

  AnyScore other_;  // remembers nothing
  float weight_;
  bool inner_is_first_;
  std::vector<double> room_;  // [capacity]
};

}  // namespace value
}  // namespace buzz
