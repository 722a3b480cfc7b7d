#include <benchmark/benchmark.h>

#include "problem.h"
#include "ratio.h"

namespace {

// One token's K and V into a cache that is not full.
template <class T>
void append(benchmark::State& state) {
  const int capacity = 4096;
  std::vector<T> kv = bench::random_values<T>(bench::kv_heads * bench::head_dim, 7);
  const auto token = buzz::view(kv, 1, bench::kv_heads, bench::head_dim);
  buzz::BuzzCache<T, buzz::Full> cache(buzz::Shape{bench::query_heads, bench::kv_heads, bench::head_dim},
                                       bench::roomy<buzz::Full>(capacity));
  for (auto _ : state) {
    if (cache.rows() == capacity) cache.reset();
    cache.append(token, token);
  }
}
BENCHMARK_TEMPLATE(append, float);
BENCHMARK_TEMPLATE(append, Eigen::half);

// One token's probabilities, [query_heads, 1, rows], into the scores.
void observe(benchmark::State& state) {
  const int rows = bench::paper_rows;
  buzz::Beehive policy(bench::roomy<buzz::Beehive>(rows), bench::kv_heads, rows);
  policy.append(rows);
  const std::vector<float> p(static_cast<std::size_t>(bench::query_heads) * static_cast<std::size_t>(rows), 1.f / rows);
  const auto probabilities = buzz::view(p, bench::query_heads, 1, rows);
  for (auto _ : state) policy.observe(probabilities);
}
BENCHMARK(observe);

// The choice of an eviction at the paper's sizes.
void select(benchmark::State& state) {
  bench::Eviction<float> eviction;
  for (auto _ : state) {
    eviction.prepare();
    state.SetIterationTime(bench::seconds([&] { eviction.select(); }));
  }
}
BENCHMARK(select)->UseManualTime();

// The moves of that eviction, K and V.
template <class T>
void compact(benchmark::State& state) {
  bench::Eviction<T> eviction;
  for (auto _ : state) eviction.compact();
}
BENCHMARK_TEMPLATE(compact, float);
BENCHMARK_TEMPLATE(compact, Eigen::half);

}  // namespace
