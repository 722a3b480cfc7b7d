#include <benchmark/benchmark.h>

#include "plain_attention.h"
#include "problem.h"

namespace {

void rows(benchmark::internal::Benchmark* b) {
  b->ArgName("rows")->Arg(bench::paper_rows)->Arg(4096)->Unit(benchmark::kMicrosecond);
}

template <class T>
void attend(benchmark::State& state) {
  bench::Decode<T> decode(bench::grouped, static_cast<int>(state.range(0)));
  for (auto _ : state) decode.attend();
}
BENCHMARK_TEMPLATE(attend, float)->Apply(rows);
BENCHMARK_TEMPLATE(attend, Eigen::half)->Apply(rows);
BENCHMARK_TEMPLATE(attend, Eigen::bfloat16)->Apply(rows);
BENCHMARK_TEMPLATE(attend, std::int8_t)->Apply(rows);

template <class T>
void attend_and_observe(benchmark::State& state) {
  bench::Decode<T> decode(bench::grouped, static_cast<int>(state.range(0)), 1, bench::roomy_beehive);
  for (auto _ : state) decode.attend_and_observe();
}
BENCHMARK_TEMPLATE(attend_and_observe, float)->Apply(rows);
BENCHMARK_TEMPLATE(attend_and_observe, Eigen::half)->Apply(rows);
BENCHMARK_TEMPLATE(attend_and_observe, Eigen::bfloat16)->Apply(rows);

template <class T>
void plain_eigen(benchmark::State& state) {
  const bench::Decode<T> decode(bench::grouped, static_cast<int>(state.range(0)));
  std::vector<float> out(decode.q().size());
  for (auto _ : state) {
    bench::plain_attention<T>(decode.q().data(), decode.cache().keys(), decode.cache().values(),
                              bench::grouped.query_heads, out.data());
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK_TEMPLATE(plain_eigen, float)->Apply(rows);
BENCHMARK_TEMPLATE(plain_eigen, Eigen::half)->Apply(rows);

}  // namespace
