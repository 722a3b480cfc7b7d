// Compiled once for each set of flags, as the function BUZZ_UNIT.

#include "unit.h"

#include <cmath>
#include <sstream>
#include <vector>

namespace {

// Sizes that fit no packet, so that rows begin anywhere, and chunks that are large enough to turn tiles of keys.
const buzz::Shape kShape{/*query_heads*/ 8, /*kv_heads*/ 2, /*head_dim*/ 37, /*max_chunk*/ 4};

template <class Cache>
Cache* make() {
  typename Cache::Options o;
  o.sink = 3;
  o.window = 9;
  o.threshold = 17;
  if constexpr (std::is_same<Cache, Recent>::value) {
    o.queries = 5;
    o.pooling = buzz::Pooling::average;
  }
  return new Cache(kShape, o);
}

std::vector<float> numbers(int count, unsigned* state) {
  std::vector<float> all;
  for (int i = 0; i < count; ++i) {
    *state = *state * 1664525u + 1013904223u;
    all.push_back(static_cast<float>(*state >> 16) / 32768.f - 1.f);
  }
  return all;
}

template <class Cache>
double stored(const Cache& cache, bool key, int head, int row, int i) {
  const double value = static_cast<double>(static_cast<float>((key ? cache.keys() : cache.values()).row(head, row)[i]));
  const buzz::View<const float> scales = key ? cache.key_scales() : cache.value_scales();
  return scales.empty() ? value : value * static_cast<double>(scales.row(0, head)[row]);
}

template <class Cache>
double attend(Cache& cache, int tokens, unsigned seed) {
  const buzz::Shape& s = kShape;
  std::vector<float> q = numbers(tokens * s.query_heads * s.head_dim, &seed), out(q.size());
  std::vector<float> k = numbers(tokens * s.kv_heads * s.head_dim, &seed),
                     v = numbers(static_cast<int>(k.size()), &seed);
  cache.append(buzz::view(k, tokens, s.kv_heads, s.head_dim), buzz::view(v, tokens, s.kv_heads, s.head_dim));
  cache.attend(buzz::view(q, tokens, s.query_heads, s.head_dim), buzz::view(out, tokens, s.query_heads, s.head_dim));
  cache.observe();

  double worst = 0;
  for (int t = 0; t < tokens; ++t)
    for (int h = 0; h < s.query_heads; ++h) {
      const std::size_t at = static_cast<std::size_t>((t * s.query_heads + h) * s.head_dim);
      const int head = h / s.group(), seen = cache.rows() - tokens + t + 1;
      std::vector<double> expected(static_cast<std::size_t>(s.head_dim));
      double sum = 0;
      for (int r = 0; r < seen; ++r) {
        double logit = 0;
        for (int i = 0; i < s.head_dim; ++i)
          logit += static_cast<double>(q[at + static_cast<std::size_t>(i)]) * stored(cache, true, head, r, i);
        const double weight = std::exp(logit / std::sqrt(s.head_dim));
        sum += weight;
        for (int i = 0; i < s.head_dim; ++i)
          expected[static_cast<std::size_t>(i)] += weight * stored(cache, false, head, r, i);
      }
      for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::fabs(expected[i] / sum - static_cast<double>(out[at + i])));
    }
  return worst;
}

template <class Cache>
Calls<Cache> calls() {
  return {make<Cache>,
          attend<Cache>,
          [](Cache& cache) { cache.evict(); },
          [](const Cache& cache) {
            std::ostringstream out;
            cache.save(out);
            return out.str();
          },
          [](Cache& cache, const std::string& saved) {
            std::istringstream in(saved);
            cache.load(in);
          },
          [](const Cache& cache) { return new Cache(cache.fork()); },
          [](Cache& to, Cache& from) { to = std::move(from); },
          [](Cache* cache) { delete cache; }};
}

}  // namespace

#define BUZZ_TEXT_(x) #x
#define BUZZ_TEXT(x) BUZZ_TEXT_(x)

Unit BUZZ_UNIT() {
  return {BUZZ_TEXT(BUZZ_ISA),
          {calls<Bees<float>>(), calls<Bees<Eigen::half>>(), calls<Bees<std::int8_t>>(), calls<Diverse>(),
           calls<Recent>()}};
}
