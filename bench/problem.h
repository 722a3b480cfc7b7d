#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "buzz.h"

namespace bench {

/// One attention layer of a model that a user may have: Llama 3 8B's, 32 query heads over 8.
inline constexpr int query_heads = 32, kv_heads = 8, head_dim = 128;

/// Rows of a full cache at the paper's sizes: sink 4, window 160, threshold 400.
inline constexpr int paper_rows = 4 + 160 + 400;

template <class T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(normal(bits));
  return values;
}

/// A policy's sizes that let it grow to `rows` and never evict before, so that only what attention does is timed.
template <class P>
typename P::Options roomy(int rows) {
  typename P::Options options;
  if constexpr (std::is_same_v<P, buzz::Full>)
    options.capacity = rows;
  else
    options.threshold = rows;
  return options;
}

/// A cache of `rows` random rows and one token's query, before its attention.
template <class T, class P>
class Decode {
 public:
  explicit Decode(int rows)
      : cache_(buzz::Shape{query_heads, kv_heads, head_dim, rows}, roomy<P>(rows)),
        q_(random_values<float>(query_heads * head_dim, 1)),
        out_(q_.size()) {
    const std::size_t count = static_cast<std::size_t>(rows) * kv_heads * head_dim;
    std::vector<T> k = random_values<T>(count, 2), v = random_values<T>(count, 3);
    cache_.append(buzz::view(k, rows, kv_heads, head_dim), buzz::view(v, rows, kv_heads, head_dim));
  }

  void attend() { cache_.attend(buzz::view(q_, 1, query_heads, head_dim), buzz::view(out_, 1, query_heads, head_dim)); }
  void attend_and_observe() {
    attend();
    cache_.observe();
  }

  const buzz::BuzzCache<T, P>& cache() const { return cache_; }
  const std::vector<float>& q() const { return q_; }
  const std::vector<float>& out() const { return out_; }

 private:
  buzz::BuzzCache<T, P> cache_;
  std::vector<float> q_, out_;  // [1, query_heads, head_dim]
};

/// An eviction of the paper's sizes in the middle of a long decode, ready to be repeated: its choice from random
/// scores, and the rows that it moves.
template <class T>
class Eviction {
 public:
  Eviction() : due_(buzz::Options{}, kv_heads), policy_(due_.fork()) {
    decode_until_due();
    for (int i = 0; i < 3; ++i) {  // by then the hive has the size that it keeps
      due_.select();
      decode_until_due();
    }
    const auto count = static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(due_.capacity()) * head_dim;
    keys_ = random_values<T>(count, 4);
    values_ = random_values<T>(count, 5);
    prepare();
    select();
  }

  /// Before each select().
  void prepare() { policy_ = due_.fork(); }
  void select() { keep_ = &policy_.select(); }
  void compact() {
    buzz::compact(*keep_, rows_of(keys_));
    buzz::compact(*keep_, rows_of(values_));
  }
  /// Tokens that share one eviction.
  int tokens() const { return tokens_; }

 private:
  void decode_until_due() {
    tokens_ = 0;
    while (!due_.due()) {
      due_.append(1);
      std::vector<float> mass(static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(due_.rows()));
      for (float& m : mass) m = uniform_(bits_);
      due_.observe_mass(buzz::view(mass, 1, kv_heads, due_.rows()));
      ++tokens_;
    }
  }
  buzz::View<T> rows_of(std::vector<T>& store) {
    return {store.data(), kv_heads, due_.rows(), head_dim, static_cast<std::ptrdiff_t>(due_.capacity()) * head_dim,
            head_dim};
  }

  buzz::Beehive due_, policy_;
  const buzz::Keep* keep_ = nullptr;
  std::vector<T> keys_, values_;  // [kv_heads, capacity, head_dim]
  int tokens_ = 0;
  std::mt19937 bits_{6};
  std::uniform_real_distribution<float> uniform_;
};

}  // namespace bench
