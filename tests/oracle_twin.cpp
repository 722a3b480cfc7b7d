#include "oracle_twin.h"

#include <cmath>

namespace oracle {

double key_bound(Element e, int moves, int dim) {
  double store = e == Element::float32 ? 0 : epsilon(e) / 2;
  if (e == Element::int8) store = std::sqrt(dim) / 254 + std::ldexp(4, -24);
  return std::pow(1 + store + std::ldexp(4.25, -24), 1 + moves) - 1;
}

double key_bound_small(Element e, int moves, int dim) {
  return e == Element::half ? (1 + moves) * std::sqrt(dim) * std::ldexp(1, -25) : 0;
}

double apart(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return std::sqrt(sum);
}

Twin::Twin(Element element, const Config& c, const buzz::Rope& rope, int max_rollback)
    : element_(element),
      c_(c),
      cache_(make_cache(element, c, rope, max_rollback, library_attention(c))),
      rotation_(rotation_of(rope, c.oracle.head_dim, cache_->has_raw_keys())),
      life_(stored_as(element, c.oracle), rotation_, max_rollback > 0),
      text_(c.seed),
      random_(c.seed) {}

void Twin::call(int n) {
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

void Twin::give() {
  std::vector<float> scores;
  for (int h = 0; h < c_.oracle.kv_heads; ++h) {
    for (Row& row : life_.head(h)) {
      scores.push_back(static_cast<float>(random_.in(-2, 2)));
      row.score = static_cast<double>(scores.back());
    }
  }
  cache_->give(buzz::view(scores, 1, c_.oracle.kv_heads, cache_->rows()));
}

void Twin::pin(int first, int count) {
  cache_->pin(first, count);
  life_.pin(first, count);
}

void Twin::unpin(int first, int count) {
  cache_->unpin(first, count);
  life_.unpin(first, count);
}

void Twin::rollback(int n) {
  cache_->rollback(n);
  life_.rollback(n);
  compare();
}

void Twin::compare() {
  compare_rows(0);
  compare_scores();
}

Twin::Twin(const Twin& other)
    : element_(other.element_),
      c_(other.c_),
      cache_(other.cache_->fork()),
      rotation_(other.rotation_),
      life_(other.life_),
      text_(other.text_),
      random_(other.random_),
      evictions_(other.evictions_),
      near_ties_(other.near_ties_) {}

void Twin::evict() {
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

void Twin::compare_rows(int first) {
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

void Twin::compare_row(int h, int i, const Vector& key, const Vector& value) {
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

void Twin::compare_outputs(const Tokens& expected, const std::vector<float>& out) const {
  auto next = out.begin();
  for (const std::vector<Vector>& token : expected)
    for (const Vector& head : token)
      for (double x : head) expect(std::fabs(static_cast<double>(*next++) - x) <= kTolerance, "attention output");
}

void Twin::compare_scores() {
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

}  // namespace oracle
