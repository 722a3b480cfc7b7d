#include <benchmark/benchmark.h>

#include "problem.h"
#include "ratio.h"

namespace {

constexpr bench::Layer layer = bench::grouped;

// One token's K and V into a cache that is not full.
template <class T>
void append(benchmark::State& state) {
  const int capacity = 4096;
  std::vector<T> kv = bench::random_values<T>(bench::count(1, layer.kv_heads, layer.head_dim), 7);
  const auto token = buzz::view(kv, 1, layer.kv_heads, layer.head_dim);
  buzz::BuzzCache<T> cache(buzz::Shape{layer.query_heads, layer.kv_heads, layer.head_dim}, bench::roomy_full(capacity));
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
  buzz::Evictor evictor(bench::roomy_beehive(rows), layer.kv_heads, rows);
  evictor.append(rows);
  const std::vector<float> p(bench::count(1, layer.query_heads, rows), 1.f / rows);
  const auto probabilities = buzz::view(p, layer.query_heads, 1, rows);
  for (auto _ : state) evictor.observe(probabilities);
}
BENCHMARK(observe);

// The choice of an eviction at the paper's sizes.
void select(benchmark::State& state) {
  bench::Eviction<float> eviction(layer);
  for (auto _ : state) {
    eviction.prepare();
    state.SetIterationTime(bench::seconds([&] { eviction.select(); }));
  }
}
BENCHMARK(select)->UseManualTime();

// The moves of that eviction, K and V.
template <class T>
void compact(benchmark::State& state) {
  bench::Eviction<T> eviction(layer);
  for (auto _ : state) eviction.compact();
}
BENCHMARK_TEMPLATE(compact, float);
BENCHMARK_TEMPLATE(compact, Eigen::half);

}  // namespace
