#pragma once

// A library's cache and the oracle, taken through the same life: chunks, pins, rollback, forks.

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "oracle_compare.h"
#include "oracle_life.h"

namespace oracle {

/// Calls f(kind) for each kind of policy.
template <class F>
void with_every_kind(F&& f) {
  for (int kind = 0; kind < kKinds; ++kind) f(static_cast<Kind>(kind));
}

/// The field that f() is refused for; an error of another family goes on to fail the test.
template <class Family = buzz::Error>
std::string refused(Call f) {
  try {
    f();
  } catch (const Family& e) {
    return e.field();
  }
  return "nothing";
}

/// The next n tokens of a text for a cache, and room for their outputs.
struct NextTokens {
  template <class C>
  NextTokens(const C& cache, const Text& text, int count)
      : shape(cache.shape()),
        n(count),
        queries(text.queries(cache.next_position(), n, shape.query_heads, shape.head_dim)),
        keys(text.keys(cache.next_position(), n, shape.kv_heads, shape.head_dim)),
        values(text.values(cache.next_position(), n, shape.kv_heads, shape.value_size())),
        outputs(static_cast<std::size_t>(n * shape.query_heads * shape.value_size())) {}
  auto q() const { return buzz::view(queries, n, shape.query_heads, shape.head_dim); }
  auto k() const { return buzz::view(keys, n, shape.kv_heads, shape.head_dim); }
  auto v() const { return value_view(values, n, shape); }
  auto out() { return buzz::view(outputs, n, shape.query_heads, shape.value_size()); }

  buzz::Shape shape;
  int n;
  std::vector<float> queries, keys, values, outputs;
};

/// Feeds the next n tokens of a text to a cache, in one call; returns its outputs.
template <class C>
std::vector<float> feed(C& cache, const Text& text, int n, buzz::Executor run = {}) {
  NextTokens next(cache, text, n);
  cache.attend(next.q(), next.k(), next.v(), next.out(), run);
  return std::move(next.outputs);
}

/// The first two steps of a call of n tokens.
template <class C>
void append_and_attend(C& cache, int n, const Text& text = Text()) {
  NextTokens next(cache, text, n);
  cache.append(next.k(), next.v());
  cache.attend(next.q(), next.out());
}

/// All that a cache is, as bytes.
template <class C>
std::string bytes_of(const C& cache) {
  std::ostringstream out;
  cache.save(out);
  return out.str();
}

/// How far a stored key may be from the exact rotation of the raw key, as a part of its norm, after `moves` moves.
/// A float rotation computes a * cos - b * sin with each term rounded three times (table, product, sum), u = 2^-24:
/// 3u (|a cos| + |b sin|) <= 3u |(a, b)| for either element, so 3 sqrt(2) u < 4.25u of the pair, hence of the row. A
/// store then rounds each element once: by at most 2^-11 of it in half, 2^-8 in bfloat16, not at all in float; in int8
/// by half a scale, 1/254 of the row's largest, so sqrt(dim) / 254 of the row (and float's part for the scale). The row
/// is rotated and stored 1 + moves times, and each rotation passes on the error there was: (1 + r)^(1 + moves) - 1.
double key_bound(Element e, int moves, int dim);
/// What half adds where elements are below its normal numbers: 2^-25 each.
double key_bound_small(Element e, int moves, int dim);

/// The distance of a stored key from what it should be.
double apart(const Vector& a, const Vector& b);

/// The oracle's choice at an eviction that the library has done, or, where float rounding tipped a near tie, the
/// library's: then a ten-thousandth more for its rows (of their importance, or of 1) makes the oracle choose them.
template <class C>
Cache::Choice follow(const C& cache, Life& life, int h, bool of_one, int* near_ties) {
  const std::vector<Row>& before = life.head(h);
  std::vector<int> kept;
  std::size_t r = 0;
  for (std::int32_t p : cache.positions(h)) {
    while (r < before.size() && before[r].position < p) ++r;
    expect(r < before.size() && before[r].position == p, "a kept position that was not there");
    kept.push_back(static_cast<int>(r));
  }
  std::vector<double> importance = life.importance(h);
  const Cache::Choice exact = life.choose(h, importance);
  if (exact.kept == kept) return exact;
  ++*near_ties;
  for (int row : kept) {
    double& w = importance[static_cast<std::size_t>(row)];
    w += of_one ? kTolerance : kTolerance * w;
  }
  const Cache::Choice nudged = life.choose(h, importance);
  expect(nudged.kept == kept, "kept rows");
  return nudged;
}

/// A library's cache and the oracle, through the same life. Throws Mismatch where they differ.
class Twin {
 public:
  Twin(Element element, const Config& c, const buzz::Rope& rope, int max_rollback = 0);
  Twin(const Config& c, const buzz::Rope& rope, int max_rollback = 0) : Twin(Element::float32, c, rope, max_rollback) {}

  /// Both sides live on, apart from these.
  Twin fork() const { return Twin(*this); }

  AnyCache& cache() { return *cache_; }
  Life& life() { return life_; }
  int evictions() const { return evictions_; }
  int near_ties() const { return near_ties_; }

  /// Goes on with another text.
  void say(std::uint64_t seed) { text_ = Text(seed); }

  /// One call of n tokens.
  void call(int n);

  /// The user's own scores, few of them, so that many tie.
  void give();

  void pin(int first, int count);
  void unpin(int first, int count);
  void rollback(int n);

  /// Sizes, positions, keys, values and scores of all rows.
  void compare();

 private:
  Twin(const Twin& other);

  void evict();

  void compare_rows(int first);

  /// Then the oracle takes the stored key, so that outputs and scores differ by float arithmetic alone.
  void compare_row(int h, int i, const Vector& key, const Vector& value);

  void compare_outputs(const Tokens& expected, const std::vector<float>& out) const;

  void compare_scores();

  Element element_;
  Config c_;
  CachePtr cache_;
  Rotation rotation_;
  Life life_;
  Text text_;
  Random random_;
  int evictions_ = 0, near_ties_ = 0;
};

}  // namespace oracle
