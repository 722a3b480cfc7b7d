#include "oracle_compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace oracle {

namespace {

/// The choice must be the oracle's. Where it is not, float rounding may have tipped a near tie: then giving the rows
/// that the library kept as much more must make the oracle choose them too.
bool same_choice(const Cache& cache, int h, const Config& c, const std::vector<double>& importance,
                 const std::vector<int>& kept, Cache::Choice* choice) {
  if (choice->kept == kept) return true;
  expect(c.kind != Kind::given && c.kind != Kind::strided, "kept rows, where scores are exact");
  std::vector<double> nudged = importance;
  for (int row : kept) {
    double& score = nudged[static_cast<std::size_t>(row)];
    score += looks_at_rows(c.kind) ? kTolerance : kTolerance * score;
  }
  *choice = cache.choose(h, nudged);
  expect(choice->kept == kept, "kept rows");
  return false;
}

double largest(const Vector& x) {
  double result = 0;
  for (double e : x) result = std::max(result, std::fabs(e));
  return result;
}

template <class X>
bool same_bits(buzz::Span<const X> a, buzz::Span<const X> b) {
  return a.size == b.size &&
         (a.size == 0 || std::memcmp(a.data, b.data, static_cast<std::size_t>(a.size) * sizeof(X)) == 0);
}

}  // namespace

Tokens tokens_of(const std::vector<float>& flat, int heads, int dim) {
  Tokens result;
  for (auto next = flat.begin(); next != flat.end();) {
    result.emplace_back();
    for (int h = 0; h < heads; ++h, next += dim) result.back().emplace_back(next, next + dim);
  }
  return result;
}

Options stored_as(Element element, Options o) {
  o.stored = [element](double x) { return rounded(element, x); };
  return o;
}

Comparison::Comparison(Element element, const Config& c, Statistics* statistics)
    : element_(element),
      c_(c),
      o_(stored_as(element, c.oracle)),
      random_(c.seed + 1),
      statistics_(statistics),
      oracle_(o_),
      steps_(make_cache(element, c, library_rope(c), 0, library_attention(c))),
      whole_(make_cache(element, c, library_rope(c), 0, library_attention(c))) {}

void Comparison::run() {
  ++statistics_->configurations;
  expect(steps_->capacity() == most_rows(c_), "capacity");
  // The types of queries, keys and outputs are the caller's choice, call by call.
  for (int n : c_.calls) call(n, random_.of({Types::floats, Types::elements, Types::mixed}));
  compare_rows(0);
}

void Comparison::call(int n, Types types) {
  const buzz::Shape s = library_shape(c_);
  const std::vector<float> q = values(n, o_.query_heads, o_.head_dim, c_.amplitude, types != Types::floats);
  const std::vector<float> k = values(n, o_.kv_heads, o_.head_dim, c_.amplitude, types == Types::elements);
  const std::vector<float> v = values(n, o_.kv_heads, o_.values(), 1, types == Types::elements);
  std::vector<float> out(static_cast<std::size_t>(n * o_.query_heads * o_.values())), whole_out(out.size());
  const auto qv = buzz::view(q, n, o_.query_heads, o_.head_dim);
  const auto kv = buzz::view(k, n, o_.kv_heads, o_.head_dim), vv = value_view(v, n, s);
  give();

  whole_->attend(qv, kv, vv, buzz::view(whole_out, n, o_.query_heads, o_.values()), {}, types);
  steps_->append(kv, vv, types);
  oracle_.append(tokens_of(k, o_.kv_heads, o_.head_dim), tokens_of(v, o_.kv_heads, o_.values()));
  compare_rows(oracle_.rows() - n);

  steps_->attend(qv, buzz::view(out, n, o_.query_heads, o_.values()), types);
  const double rounding = epsilon(types == Types::elements ? element_ : Element::float32);
  compare_outputs(oracle_.attend(tokens_of(q, o_.query_heads, o_.head_dim)), out, rounding);

  steps_->observe();
  if ((o_.score == Score::attention || o_.score == Score::recent) && n > 0) oracle_.observe();
  if (expects(o_.score)) oracle_.observe_queries(tokens_of(q, o_.query_heads, o_.head_dim));
  compare_scores();

  compare_rows(evict() ? 0 : oracle_.rows());
  compare_scores();
  compare_twins(out, whole_out);
}

std::vector<float> Comparison::values(int n, int heads, int dim, float amplitude, bool as_elements) {
  std::vector<float> result(static_cast<std::size_t>(n * heads * dim));
  for (float& x : result) {
    x = amplitude * random_.real();
    if (as_elements) x = static_cast<float>(rounded(element_, static_cast<double>(x)));
  }
  return result;
}

void Comparison::give() {
  if (c_.kind != Kind::given) return;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> scores;
  for (int h = 0; h < o_.kv_heads; ++h) {
    for (Row& row : oracle_.head(h)) {
      const float few = static_cast<float>(random_.in(-2, 2));
      scores.push_back(random_.one_in(8) ? random_.of({nan, inf, -inf}) : few);
      row.score = static_cast<double>(scores.back());
    }
  }
  steps_->give(buzz::view(scores, 1, o_.kv_heads, steps_->rows()));
  whole_->give(buzz::view(scores, 1, o_.kv_heads, whole_->rows()));
}

void Comparison::compare_rows(int first) {
  const Regions r = oracle_.regions();
  expect(steps_->rows() == oracle_.rows(), "rows");
  expect(steps_->rows() <= steps_->capacity(), "rows past the capacity");
  expect(steps_->regions() == (buzz::Regions{r.sink, r.hive, r.unfiltered, r.window}), "regions");
  expect(steps_->next_position() == oracle_.next_position(), "next_position");
  for (int h = 0; h < o_.kv_heads; ++h) {
    const auto positions = steps_->positions(h);
    const AnyCache::Rows keys = steps_->keys(h, first), values = steps_->values(h, first);
    expect(positions.size == oracle_.rows(), "count of positions");
    for (int i = first; i < oracle_.rows(); ++i) {
      const Row& row = oracle_.head(h)[static_cast<std::size_t>(i)];
      expect(positions[i] == row.position, "position");
      const AnyCache::Stored& key = keys[static_cast<std::size_t>(i - first)];
      const AnyCache::Stored& value = values[static_cast<std::size_t>(i - first)];
      compare_key(key, row);
      compare_value(value, row);
      oracle_.replace_row(h, i, key.values, value.values);
    }
  }
}

void Comparison::compare_key(const AnyCache::Stored& key, const Row& row) const {
  const bool rotated = o_.rope_base != 0 && !o_.raw_keys;
  // Rounding is relative to an element's size, and a rotation mixes two; each move of a compact key rounds once more.
  const double roundings = 1 + (o_.rope_compact && rotated ? row.moves : 0), most = largest(row.raw_key);
  double tolerance = rotated ? 2.5 * roundings * epsilon(element_) * most : 0;
  if (element_ == Element::int8) {
    expect(key.scale <= 1.5 * most / 127, "a scale that wastes bits");
    tolerance = roundings * (rotated ? 1 : 0.501) * key.scale;
  }
  for (std::size_t d = 0; d < row.key.size(); ++d) expect(std::fabs(key.values[d] - row.key[d]) <= tolerance, "key");
}

void Comparison::compare_value(const AnyCache::Stored& value, const Row& row) const {
  const bool scaled = element_ == Element::int8;
  const int roundings = o_.values_in_keys && o_.rope_compact && !o_.raw_keys ? 1 + row.moves : 1;  // with its key
  const double tolerance = scaled ? roundings * 0.501 * value.scale : 0;
  expect(!scaled || o_.values_in_keys || value.scale <= 1.01 * largest(row.value) / 127, "a scale that wastes bits");
  for (std::size_t d = 0; d < row.value.size(); ++d)
    expect(std::fabs(value.values[d] - row.value[d]) <= tolerance, "value");
}

void Comparison::compare_outputs(const Tokens& expected, const std::vector<float>& out, double rounding) {
  auto next = out.begin();
  for (const std::vector<Vector>& token : expected)
    for (const Vector& head : token)
      for (double x : head) {
        const double got = static_cast<double>(*next++);
        expect(std::fabs(got - x) <= kTolerance + rounding * std::fabs(x), "attention output");
      }
}

void Comparison::compare_scores() const {
  const bool kept = o_.score == Score::attention || o_.score == Score::given;
  for (int h = 0; h < o_.kv_heads; ++h) {
    const auto scores = steps_->scores(h);
    expect(scores.size == (kept ? oracle_.rows() : 0), "count of scores");
    for (int i = 0; i < scores.size; ++i) {
      const double x = oracle_.head(h)[static_cast<std::size_t>(i)].score, got = static_cast<double>(scores[i]);
      const bool same = std::isfinite(x) && o_.score == Score::attention
                            ? std::fabs(got - x) <= kTolerance * x
                            : got == x || (std::isnan(got) && std::isnan(x));
      expect(same, "score");
    }
  }
}

bool Comparison::evict() {
  const bool evicts = oracle_.should_evict();
  std::vector<std::vector<double>> importance;
  std::vector<Cache::Choice> choices;
  for (int h = 0; h < o_.kv_heads && evicts; ++h) {
    importance.push_back(oracle_.importance(h));
    choices.push_back(oracle_.choose(h, importance.back()));
  }
  expect(steps_->evict() == evicts, "whether it evicts");
  if (!evicts) return false;
  ++statistics_->evictions;
  ++statistics_->evictions_of[static_cast<int>(c_.kind)];
  statistics_->repeated_passes += choices[0].passes > 1;
  bool exact = true;
  for (int h = 0; h < o_.kv_heads; ++h)
    exact &= same_choice(oracle_, h, c_, importance[static_cast<std::size_t>(h)], kept_rows(h),
                         &choices[static_cast<std::size_t>(h)]);
  statistics_->near_ties += !exact;
  oracle_.evict(choices);
  return true;
}

std::vector<int> Comparison::kept_rows(int h) const {
  std::vector<int> rows;
  const std::vector<Row>& before = oracle_.head(h);
  for (std::int32_t position : steps_->positions(h)) {
    std::size_t i = 0;
    while (i < before.size() && before[i].position != position) ++i;
    expect(i < before.size(), "a kept position that was not there");
    rows.push_back(static_cast<int>(i));
  }
  return rows;
}

void Comparison::compare_twins(const std::vector<float>& out, const std::vector<float>& whole_out) const {
  expect(out.empty() || std::memcmp(out.data(), whole_out.data(), out.size() * sizeof(float)) == 0,
         "output of one call");
  expect(steps_->rows() == whole_->rows() && steps_->regions() == whole_->regions(), "sizes after one call");
  for (int h = 0; h < o_.kv_heads; ++h) {
    expect(same_bits(steps_->positions(h), whole_->positions(h)), "positions after one call");
    expect(same_bits(steps_->scores(h), whole_->scores(h)), "scores after one call");
  }
  expect(steps_->same_rows(*whole_), "keys and values after one call");
}

}  // namespace oracle
