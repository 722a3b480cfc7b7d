// The engine keeps its own K and V, computes its own attention, and asks buzz which rows to keep.
#include <buzz.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr int query_heads = 4, kv_heads = 2, head_dim = 16, tokens = 1000;

/// An engine's K and V: [kv_heads, capacity, head_dim] each, of which `rows` of every head are in use.
struct Engine {
  explicit Engine(int most_rows)
      : k(static_cast<std::size_t>(kv_heads * most_rows * head_dim)), v(k), capacity(most_rows) {}

  void append(std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int h = 0; h < kv_heads; ++h)
      for (int d = 0; d < head_dim; ++d) {
        keys().row(h, rows)[d] = normal(random);
        values().row(h, rows)[d] = normal(random);
      }
    ++rows;
  }

  /// Softmax attention of one random query a head; returns its probabilities, [query_heads, 1, rows].
  std::vector<float> attend(std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> p(static_cast<std::size_t>(query_heads * rows));
    for (int q = 0; q < query_heads; ++q) {
      float query[head_dim], sum = 0;
      for (float& x : query) x = normal(random) / std::sqrt(float{head_dim});
      for (int r = 0; r < rows; ++r) {
        const float* key = keys().row(q / (query_heads / kv_heads), r);
        float logit = 0;
        for (int d = 0; d < head_dim; ++d) logit += query[d] * key[d];
        sum += p[static_cast<std::size_t>(q * rows + r)] = std::exp(logit);
      }
      for (int r = 0; r < rows; ++r) p[static_cast<std::size_t>(q * rows + r)] /= sum;
    }
    return p;
  }

  /// For buzz to move rows in.
  buzz::View<float> keys() { return buzz::view(k, kv_heads, capacity, head_dim); }
  buzz::View<float> values() { return buzz::view(v, kv_heads, capacity, head_dim); }

  std::vector<float> k, v;
  int capacity, rows = 0;
};

}  // namespace

int main() {
  buzz::BeehiveOptions options;
  options.sink = 4;
  options.window = 32;
  options.threshold = 64;
  buzz::Evictor evictor(buzz::beehive(options), kv_heads);
  Engine engine(evictor.capacity());
  std::mt19937 random(7);
  int evictions = 0, peak = 0;

  for (int t = 0; t < tokens; ++t) {
    engine.append(random);
    const int n = 1, held = engine.rows;
    peak = held > peak ? held : peak;
    const std::vector<float> p = engine.attend(random);
    const buzz::View<const float> probabilities = buzz::view(p, query_heads, n, engine.rows);

    // As in README.md, which a test compares.
    evictor.append(n);
    evictor.observe(probabilities);  // [query_heads, queries, rows]
    if (evictor.should_evict()) {
      const buzz::KeptRows& kept = evictor.select();
      buzz::compact(kept, engine.keys());  // [kv_heads, rows, head_dim], moved in place
      buzz::compact(kept, engine.values());
      engine.rows = kept.size();
    }

    evictions += engine.rows < held;
  }

  std::printf("%d tokens, %d evictions, %d rows at most of %d allowed\n", evictor.next_position(), evictions, peak,
              evictor.capacity());
  for (int h = 0; h < kv_heads; ++h) {
    std::printf("head %d holds the sink and", h);
    for (int r = options.sink; r < options.sink + 6; ++r) std::printf(" %d", static_cast<int>(evictor.positions(h)[r]));
    std::printf(" ...\n");
  }
}
