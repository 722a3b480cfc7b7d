#pragma once

// The caches of tests/data/saved: one of each kind of score, with some tokens behind it; what saved them and what loads
// them have done the same.

#include <cstdint>
#include <string>
#include <vector>

#include "buzz.h"
#include "typed.h"

namespace saved {

/// The same floats everywhere, multiples of 1/128 between -1 and 1.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : state_(seed) {}
  std::vector<float> operator()(int count) {
    std::vector<float> result;
    for (int i = 0; i < count; ++i) {
      state_ = state_ * 1664525u + 1013904223u;
      result.push_back(static_cast<float>(static_cast<int>(state_ >> 24) - 128) / 128);
    }
    return result;
  }

 private:
  std::uint32_t state_;
};

constexpr int query_heads = 4, kv_heads = 2, head_dim = 4, max_chunk = 3;

/// One call; what it gives out. Scores of the user's own are given after it.
template <class T>
std::vector<float> call(buzz::BuzzCache<T>& cache, Numbers& numbers, int tokens) {
  const std::vector<float> q = numbers(tokens * query_heads * head_dim), k = numbers(tokens * kv_heads * head_dim),
                           v = numbers(tokens * kv_heads * head_dim);
  std::vector<float> out(q.size());
  const auto view = [&](const std::vector<float>& x, int heads) {
    return buzz::View<const float>(x.data(), tokens, heads, head_dim);
  };
  cache.attend(view(q, query_heads), view(k, kv_heads), view(v, kv_heads),
               buzz::View<float>(out.data(), tokens, query_heads, head_dim));
  if (cache.policy().score.kind == buzz::ScoreKind::user) {
    const std::vector<float> scores = numbers(kv_heads * cache.rows());
    cache.give(buzz::View<const float>(scores.data(), 1, kv_heads, cache.rows()));
  }
  return out;
}

/// Calls of 1, 2, 3, 1, 2, ... tokens, from the next token on; what they give out.
template <class T>
std::vector<float> calls(buzz::BuzzCache<T>& cache, int count) {
  std::vector<float> all;
  for (int i = 0; i < count; ++i) {
    Numbers numbers(static_cast<std::uint32_t>(cache.next_position()));
    const std::vector<float> out = call(cache, numbers, 1 + i % max_chunk);
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

template <class T, class F>
void one(F&& f, const char* name, const buzz::Rope& rope, const buzz::Policy& policy) {
  buzz::Shape shape;
  shape.query_heads = query_heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.max_chunk = max_chunk;
  f(name, buzz::BuzzCache<T>(shape, policy, rope));
}

/// f(name, cache): each cache of tests/data/saved, with nothing appended yet.
template <class F>
void for_each(F&& f) {
  using namespace buzz;
  Rope rope, compact;
  rope.base = compact.base = 10000;
  compact.positions = Positions::compact;
  // So small that it has evicted more than once after 20 calls.
  const auto small = [](const std::string& name, const std::string& more = "") {
    return policy(name + ":rows=16,max_chunk=" + std::to_string(max_chunk) + more);
  };
  const Policy top_k = small("heavy_hitter");
  one<float>(f, "accumulated", rope, small("beehive"));
  one<float>(f, "latest", rope, small("beehive", ",attention=latest"));
  one<float>(f, "mean", compact, small("heavy_hitter", ",attention=mean"));
  one<Eigen::half>(f, "newest", rope, small("heavy_hitter", ",attention=newest"));
  one<float>(f, "largest", rope, small("heavy_hitter", ",attention=largest"));
  one<float>(f, "decayed", compact, small("beehive", ",attention=decayed"));
  one<std::int8_t>(f, "int8", rope, small("beehive"));
  one<Eigen::bfloat16>(f, "tova", rope, small("tova"));
  one<float>(f, "snap_kv", rope, small("snap_kv", ",queries=3,window=4,heavy=9"));
  one<float>(f, "given", rope, policy(user_score(), top_k.select, top_k.protect));
  one<float>(f, "mass_and_values", rope, policy(sum(attention_sum(), value_norm()), top_k.select, top_k.protect));
  one<float>(f, "key_diversity", compact, small("diverse_beehive"));
  one<float>(f, "keys_and_values", rope, small("key_value_beehive"));
  one<float>(f, "key_outliers", rope, small("key_outliers"));
  one<float>(f, "no_score", Rope(), small("strided"));
}

}  // namespace saved
