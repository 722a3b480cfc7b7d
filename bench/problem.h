#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "buzz.h"

namespace bench {

/// One attention layer of a model that a user may have.
struct Layer {
  int query_heads, kv_heads, head_dim;

  std::string name() const {
    return std::to_string(query_heads) + "/" + std::to_string(kv_heads) + "x" + std::to_string(head_dim);
  }
};
inline constexpr Layer grouped{32, 8, 128};     // Llama 3 8B's
inline constexpr Layer ungrouped{32, 32, 128};  // Llama 2 7B's
inline constexpr Layer small_layer{8, 2, 64};

/// Rows of a full cache at the paper's sizes: sink 4, window 160, threshold 400.
inline constexpr int paper_rows = 4 + 160 + 400;
inline constexpr int long_rows = 32768;

/// Values in -1 to 1. A cheap generator: some caches here are of a gigabyte.
template <class T>
std::vector<T> random_values(std::size_t count, std::uint32_t seed) {
  std::vector<T> values(count);
  std::uint32_t state = seed * 2654435761u + 1;
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<T>(static_cast<float>(state >> 8) / (1 << 23) - 1.f);
  }
  return values;
}

inline std::size_t count(int a, int b, int c) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

/// Policies that grow to `rows` and never evict before, so that only what attention does is timed.
/// @{
inline buzz::Policy roomy_full(int rows) {
  buzz::FullOptions options;
  options.capacity = rows;
  return buzz::full(options);
}
inline buzz::Policy roomy_beehive(int rows) {
  buzz::BeehiveOptions options;
  options.threshold = rows;
  return buzz::beehive(options);
}
/// @}

/// Their magnitudes, as sums of attention are.
inline std::vector<float> random_sums(std::size_t count, std::uint32_t seed) {
  std::vector<float> values = random_values<float>(count, seed);
  for (float& x : values) x = std::abs(x);
  return values;
}

/// A cache of one of those, with `rows` random rows and one token's query, before its attention.
template <class T>
class Decode {
 public:
  Decode(const Layer& layer, int rows, int threads = 1, buzz::Policy (*roomy)(int) = roomy_full)
      : layer_(layer),
        cache_(buzz::Shape{layer.query_heads, layer.kv_heads, layer.head_dim, chunk}, roomy(rows), {},
               options(threads)),
        q_(random_values<float>(count(1, layer.query_heads, layer.head_dim), 1)),
        out_(q_.size()) {
    for (int done = 0; done < rows; done += chunk) {
      const int n = std::min(+chunk, rows - done);
      const auto k = random_values<float>(count(n, layer.kv_heads, layer.head_dim), 2u + static_cast<unsigned>(done));
      const auto v = random_values<float>(k.size(), 3u + static_cast<unsigned>(done));
      cache_.append(buzz::view(k, n, layer.kv_heads, layer.head_dim), buzz::view(v, n, layer.kv_heads, layer.head_dim));
    }
  }

  void attend(buzz::Executor run = {}) {
    cache_.attend(buzz::view(q_, 1, layer_.query_heads, layer_.head_dim),
                  buzz::view(out_, 1, layer_.query_heads, layer_.head_dim), run);
  }
  void attend_and_observe() {
    attend();
    cache_.observe();
  }

  const buzz::BuzzCache<T>& cache() const { return cache_; }
  const std::vector<float>& q() const { return q_; }
  const std::vector<float>& out() const { return out_; }

 private:
  static constexpr int chunk = 256;
  static buzz::AttentionOptions options(int threads) {
    buzz::AttentionOptions o;
    o.threads = threads;
    return o;
  }

  Layer layer_;
  buzz::BuzzCache<T> cache_;
  std::vector<float> q_, out_;  // [1, query_heads, head_dim]
};

/// An eviction of the paper's sizes in the middle of a long decode, ready to be repeated: its choice from random
/// scores, and the rows that it moves.
template <class T>
class Eviction {
 public:
  explicit Eviction(const Layer& layer)
      : layer_(layer), before_(buzz::beehive(), layer.kv_heads), evictor_(before_.fork()) {
    decode_until_due();
    for (int i = 0; i < 3; ++i) {  // by then the hive has the size that it keeps
      before_.select();
      decode_until_due();
    }
    keys_ = random_values<T>(count(layer.kv_heads, before_.capacity(), layer.head_dim), 4);
    values_ = random_values<T>(keys_.size(), 5);
    prepare();
    select();
  }

  /// Before each select().
  void prepare() { evictor_ = before_.fork(); }
  void select() { keep_ = &evictor_.select(); }
  void compact() {
    buzz::compact(*keep_, rows_of(keys_));
    buzz::compact(*keep_, rows_of(values_));
  }
  /// memmove of as many rows as compact() moves, in one piece a head.
  void move_bytes() {
    for (auto* store : {&keys_, &values_})
      for (int h = 0; h < layer_.kv_heads; ++h) {
        T* rows = store->data() + count(h, before_.capacity(), layer_.head_dim);
        int moved = 0;
        keep_->for_each_run(h, [&](int from, int to, int n) { moved += from == to ? 0 : n; });
        const std::size_t first = count(before_.rows() - moved, layer_.head_dim, 1);
        std::memmove(static_cast<void*>(rows), rows + first, count(moved, layer_.head_dim, 1) * sizeof(T));
      }
  }
  /// Tokens that share one eviction.
  int tokens() const { return tokens_; }

 private:
  void decode_until_due() {
    tokens_ = 0;
    while (!before_.should_evict()) {
      before_.append(1);
      const auto sums = random_sums(count(1, layer_.kv_heads, before_.rows()), 6 + ++seed_);
      before_.observe_sums(buzz::view(sums, 1, layer_.kv_heads, before_.rows()));
      ++tokens_;
    }
  }
  buzz::View<T> rows_of(std::vector<T>& store) {
    return {store.data(),
            layer_.kv_heads,
            before_.rows(),
            layer_.head_dim,
            static_cast<std::ptrdiff_t>(before_.capacity()) * layer_.head_dim,
            layer_.head_dim};
  }

  Layer layer_;
  buzz::Evictor before_, evictor_;
  const buzz::KeptRows* keep_ = nullptr;
  std::vector<T> keys_, values_;  // [kv_heads, capacity, head_dim]
  int tokens_ = 0;
  unsigned seed_ = 0;
};

}  // namespace bench
