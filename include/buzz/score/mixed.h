#pragma once

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/keep.h"

namespace buzz {

/// Gives values [count] the mean 0 and the deviation 1 (of all of them, not of a sample); equal ones become 0. One that
/// is not finite makes all NaN. O(count).
template <class Real>
void standardise(Real* values, int count) {
  double sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) sum += static_cast<double>(values[i]);
  const double mean = sum / count;
  for (int i = 0; i < count; ++i)
    squares += (static_cast<double>(values[i]) - mean) * (static_cast<double>(values[i]) - mean);
  const double deviation = std::sqrt(squares / count);
  for (int i = 0; i < count; ++i)
    values[i] = is_zero(deviation) ? Real() : static_cast<Real>((static_cast<double>(values[i]) - mean) / deviation);
}

/// Score: A's worth plus `weight` times B's, each with mean 0 and deviation 1 over the middle rows of its head, so that
/// units do not matter. At most one of the two has a memory. A worth that is not finite makes its head's NaN, and the
/// choice falls on the oldest rows.
template <class A, class B>
class Mixed {
  static_assert(!A::remembers || !B::remembers, "one of the two at most may have a memory");
  static_assert(A::code >= 0 && B::code >= 0 && B::code < 100, "mixtures nest on the left, and are shared as a whole");
  using Memory = std::conditional_t<A::remembers, A, B>;

 public:
  /// A's, B's, and how much B counts.
  struct Options : A::Options, B::Options {
    float weight = 1;  ///< of B; finite
  };
  /// @{
  /// As in Mass.
  static constexpr int code = 10000 + 100 * A::code + B::code;  // in saved files
  using Value = typename Memory::Value;
  static constexpr bool remembers = A::remembers || B::remembers;
  static constexpr bool needs_mass = A::needs_mass || B::needs_mass;
  static constexpr bool needs_rows = A::needs_rows || B::needs_rows;

  static void check(const Options& o) {
    A::check(o);
    B::check(o);
    if (!is_finite(o.weight)) fail("weight", std::to_string(o.weight), "finite");
  }
  template <class Archive>
  static void archive(Archive& a, const Options& o) {
    A::archive(a, o);
    B::archive(a, o);
    a.same("weight", o.weight);
  }
  static int queries_apart(const Options& o) { return Memory::queries_apart(o); }
  Mixed(const Options& o, int heads, int capacity)
      : a_(o, heads, capacity),
        b_(o, heads, capacity),
        weight_(static_cast<double>(o.weight)),
        worth_(static_cast<std::size_t>(capacity)) {}

  void append(int rows, int tokens) {
    a_.append(rows, tokens);
    b_.append(rows, tokens);
  }
  const float* column_sums(const View<const float>& probabilities, int head, int query) {
    return memory(*this).column_sums(probabilities, head, query);
  }
  void add(int head, const float* sums, int rows, bool first) { memory(*this).add(head, sums, rows, first); }

  /// O(count) and what A and B take.
  template <class Rows, class Real>
  void worth(int head, int begin, int count, const std::int32_t* positions, int next, const Rows& rows, Real* out) {
    a_.worth(head, begin, count, positions, next, rows, out);
    b_.worth(head, begin, count, positions, next, rows, worth_.data());
    standardise(out, count);
    standardise(worth_.data(), count);
    for (int i = 0; i < count; ++i) out[i] += static_cast<Real>(weight_ * worth_[static_cast<std::size_t>(i)]);
  }

  void compact(const Keep& keep) {
    a_.compact(keep);
    b_.compact(keep);
  }
  void forget(int end) {
    a_.forget(end);
    b_.forget(end);
  }
  /// Those of the one that has a memory.
  Span<const double> scores(int head, int rows) const { return memory(*this).scores(head, rows); }
  Value* target(int head) { return memory(*this).target(head); }
  void step_back() { memory(*this).step_back(); }
  template <class Self, class Archive>
  static void archive_rows(Self& self, Archive& a, int head, int rows) {
    Memory::archive_rows(memory(self), a, head, rows);
  }
  std::size_t bytes() const { return a_.bytes() + b_.bytes() + worth_.size() * sizeof(double); }
  /// @}

 private:
  template <class Self>
  static auto& memory(Self& self) {
    if constexpr (A::remembers)
      return self.a_;
    else
      return self.b_;
  }

  A a_;
  B b_;
  double weight_;
  std::vector<double> worth_;  // [capacity], B's of one head
};

}  // namespace buzz
