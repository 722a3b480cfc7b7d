#pragma once

// A library's cache and the oracle, taken through the same life: chunks, pins, rollback, forks.

#include "oracle_compare.h"
#include "oracle_life.h"

namespace oracle {

/// A small configuration of each policy, which evicts every few tokens; Full has room for `tokens`.
inline Config small(Kind kind, std::uint64_t seed = 1, int tokens = 400) {
  Config c;
  c.seed = seed;
  c.kind = kind;
  c.max_chunk = 8;
  c.calls = {tokens};
  Options& o = c.oracle;
  o.query_heads = 4;
  o.kv_heads = 2;
  o.head_dim = 8;
  o.scale = 1 / std::sqrt(8.0);
  o.sink = 2;
  o.window = 6;
  o.threshold = 18;
  o.stride = 4;
  o.hive_stride = 2;
  o.decay = 0.5;
  o.queries = 5;
  o.kernel = 3;
  o.ridge = 0.015625;
  o.lag = 4;
  o.horizon = 9;
  o.reach = 100;
  o.sharpness = 2;
  set_kind(&c);
  if (takes_top_k(kind)) {
    o.heavy = 12;
    c.top_threshold = o.threshold;
  }
  return c;
}

/// Calls f(kind) for each kind of policy.
template <class F>
void with_every_kind(F&& f) {
  for (int kind = 0; kind < kKinds; ++kind) f(static_cast<Kind>(kind));
}

/// The field that f() is refused for; an error of another family goes on to fail the test.
template <class Family = buzz::Error, class F>
std::string refused(F&& f) {
  try {
    f();
  } catch (const Family& e) {
    return e.field();
  }
  return "nothing";
}

/// A made-up sequence: the same numbers for the same token, whenever they are asked for.
class Text {
 public:
  explicit Text(std::uint64_t seed = 1, float amplitude = 1) : seed_(seed), amplitude_(amplitude) {}

  std::vector<float> queries(int first, int n, int heads, int dim) const { return make(0, first, n, heads, dim); }
  std::vector<float> keys(int first, int n, int heads, int dim) const { return make(1, first, n, heads, dim); }
  std::vector<float> values(int first, int n, int heads, int dim) const { return make(2, first, n, heads, dim); }

 private:
  std::vector<float> make(int kind, int first, int n, int heads, int dim) const {
    std::vector<float> all;
    for (int p = first; p < first + n; ++p) {
      Random random(seed_ * 1000003 + static_cast<std::uint64_t>(p) * 3 + static_cast<std::uint64_t>(kind));
      for (int i = 0; i < heads * dim; ++i) all.push_back((kind == 2 ? 1 : amplitude_) * random.real());
    }
    return all;
  }

  std::uint64_t seed_;
  float amplitude_;
};

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

inline Rotation rotation_of(const buzz::Rope& rope, int head_dim, bool raw) {
  Rotation t;
  const int dims = rope.dims != 0 ? rope.dims : head_dim - rope.first;
  t.first = static_cast<std::size_t>(rope.first);
  t.frequencies = rope.frequencies;
  for (int i = 0; rope.base != 0 && rope.frequencies.empty() && i < dims / 2; ++i)
    t.frequencies.push_back(std::pow(rope.base, -2.0 * i / dims));
  t.factor = rope.attention_factor;
  t.halves = rope.pairs == buzz::Pairs::halves;
  t.compact = rope.positions == buzz::Positions::compact;
  t.raw = raw;
  return t;
}

/// How far a stored key may be from the exact rotation of the raw key, as a part of its norm, after `moves` moves.
/// A float rotation computes a * cos - b * sin with each term rounded three times (table, product, sum), u = 2^-24:
/// 3u (|a cos| + |b sin|) <= 3u |(a, b)| for either element, so 3 sqrt(2) u < 4.25u of the pair, hence of the row. A
/// store then rounds each element once: by at most 2^-11 of it in half, 2^-8 in bfloat16, not at all in float; in int8
/// by half a scale, 1/254 of the row's largest, so sqrt(dim) / 254 of the row (and float's part for the scale). The row
/// is rotated and stored 1 + moves times, and each rotation passes on the error there was: (1 + r)^(1 + moves) - 1.
inline double key_bound(Element e, int moves, int dim) {
  double store = e == Element::float32 ? 0 : epsilon(e) / 2;
  if (e == Element::int8) store = std::sqrt(dim) / 254 + std::ldexp(4, -24);
  return std::pow(1 + store + std::ldexp(4.25, -24), 1 + moves) - 1;
}
/// What half adds where elements are below its normal numbers: 2^-25 each.
inline double key_bound_small(Element e, int moves, int dim) {
  return e == Element::half ? (1 + moves) * std::sqrt(dim) * std::ldexp(1, -25) : 0;
}

/// The distance of a stored key from what it should be.
inline double apart(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return std::sqrt(sum);
}

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
  Twin(Element element, const Config& c, const buzz::Rope& rope, int max_rollback = 0)
      : element_(element),
        c_(c),
        cache_(make_cache(element, c, rope, max_rollback, library_attention(c))),
        rotation_(rotation_of(rope, c.oracle.head_dim, cache_->has_raw_keys())),
        life_(stored_as(element, c.oracle), rotation_, max_rollback > 0),
        text_(c.seed),
        random_(c.seed) {}
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
  void call(int n) {
    const int first = cache_->next_position(), dim = c_.oracle.head_dim;
    const std::vector<float> q = text_.queries(first, n, c_.oracle.query_heads, dim);
    const std::vector<float> k = text_.keys(first, n, c_.oracle.kv_heads, dim);
    const std::vector<float> v = text_.values(first, n, c_.oracle.kv_heads, c_.oracle.values());
    std::vector<float> out(static_cast<std::size_t>(n * c_.oracle.query_heads * c_.oracle.values()));
    const int new_rows = cache_->rows();
    cache_->append(buzz::view(k, n, c_.oracle.kv_heads, dim), value_view(v, n, cache_->shape()));
    life_.append(tokens_of(k, c_.oracle.kv_heads, dim), tokens_of(v, c_.oracle.kv_heads, c_.oracle.values()));
    compare_rows(new_rows);
    cache_->attend(buzz::view(q, n, c_.oracle.query_heads, dim),
                   buzz::view(out, n, c_.oracle.query_heads, c_.oracle.values()));
    compare_outputs(life_.attend(tokens_of(q, c_.oracle.query_heads, dim)), out);
    cache_->observe();
    if (c_.oracle.score == Score::attention || c_.oracle.score == Score::recent || expects(c_.oracle.score))
      life_.observe();
    compare_scores();
    evict();  // and compare all rows
  }

  /// The user's own scores, few of them, so that many tie.
  void give() {
    std::vector<float> scores;
    for (int h = 0; h < c_.oracle.kv_heads; ++h) {
      for (Row& row : life_.head(h)) {
        scores.push_back(static_cast<float>(random_.in(-2, 2)));
        row.score = static_cast<double>(scores.back());
      }
    }
    cache_->give(buzz::view(scores, 1, c_.oracle.kv_heads, cache_->rows()));
  }

  void pin(int first, int count) {
    cache_->pin(first, count);
    life_.pin(first, count);
  }
  void unpin(int first, int count) {
    cache_->unpin(first, count);
    life_.unpin(first, count);
  }
  void rollback(int n) {
    cache_->rollback(n);
    life_.rollback(n);
    compare();
  }

  /// Sizes, positions, keys, values and scores of all rows.
  void compare() {
    compare_rows(0);
    compare_scores();
  }

 private:
  Twin(const Twin& other)
      : element_(other.element_),
        c_(other.c_),
        cache_(other.cache_->fork()),
        rotation_(other.rotation_),
        life_(other.life_),
        text_(other.text_),
        random_(other.random_),
        evictions_(other.evictions_),
        near_ties_(other.near_ties_) {}

  void evict() {
    const bool evicts = life_.should_evict();
    expect(cache_->evict() == evicts, "whether it evicted");
    if (!evicts) return;
    ++evictions_;
    std::vector<Cache::Choice> choices;
    for (int h = 0; h < c_.oracle.kv_heads; ++h)
      choices.push_back(follow(*cache_, life_, h, looks_at_rows(c_.kind), &near_ties_));
    life_.evict(choices);
    compare();
  }

  void compare_rows(int first) {
    const Regions r = life_.regions();
    expect(cache_->rows() == life_.rows(), "rows");
    expect(cache_->rows() <= most_rows(c_), "rows past the bound");
    expect(cache_->regions() == (buzz::Regions{r.sink, r.hive, r.unfiltered, r.window}), "regions");
    expect(cache_->next_position() == life_.next_position(), "next_position");
    for (int h = 0; h < c_.oracle.kv_heads; ++h) {
      expect(cache_->positions(h).size == life_.rows(), "count of positions");
      for (int i = 0; i < life_.rows(); ++i)
        expect(cache_->positions(h)[i] == life_.head(h)[static_cast<std::size_t>(i)].position, "position");
      const AnyCache::Rows keys = cache_->keys(h, first), values = cache_->values(h, first);
      for (std::size_t i = 0; i < keys.size(); ++i)
        compare_row(h, first + static_cast<int>(i), keys[i].values, values[i].values);
    }
  }

  /// Then the oracle takes the stored key, so that outputs and scores differ by float arithmetic alone.
  void compare_row(int h, int i, const Vector& key, const Vector& value) {
    Row& row = life_.head(h)[static_cast<std::size_t>(i)];
    for (std::size_t d = 0; d < row.value.size(); ++d) expect(value[d] == row.value[d], "value");
    if (rotation_.raw || rotation_.frequencies.empty()) {
      for (std::size_t d = 0; d < row.key.size(); ++d) expect(key[d] == rounded(element_, row.raw_key[d]), "raw key");
      return;
    }
    const Vector exact = rotated_to(row.raw_key, rotation_.compact ? i : row.position, rotation_);
    const int moves = rotation_.compact ? row.moves : 0, dim = c_.oracle.head_dim;
    const double norm = std::sqrt(dot(exact, exact));
    expect(apart(key, exact) <= key_bound(element_, moves, dim) * norm + key_bound_small(element_, moves, dim), "key");
    row.key = key;
  }

  void compare_outputs(const Tokens& expected, const std::vector<float>& out) const {
    auto next = out.begin();
    for (const std::vector<Vector>& token : expected)
      for (const Vector& head : token)
        for (double x : head) expect(std::fabs(static_cast<double>(*next++) - x) <= kTolerance, "attention output");
  }

  void compare_scores() {
    const bool stateful = c_.oracle.score == Score::attention || c_.oracle.score == Score::given;
    for (int h = 0; stateful && h < c_.oracle.kv_heads; ++h) {
      expect(cache_->scores(h).size == life_.rows(), "count of scores");
      for (int i = 0; i < life_.rows(); ++i) {
        const Row& row = life_.head(h)[static_cast<std::size_t>(i)];
        if (row.pinned && c_.oracle.hive == Hive::first) continue;  // never read again
        const double x = row.score;
        expect(std::fabs(static_cast<double>(cache_->scores(h)[i]) - x) <= kTolerance * std::fabs(x), "score");
      }
    }
  }

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
