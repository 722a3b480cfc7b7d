#pragma once

// The caches of tests/data/saved: one of each kind of score, with some tokens behind it. A program of the version that
// saves them includes this file, and so does the test that loads them, so that both have done the same.

#include <cstdint>
#include <string>
#include <vector>

#include "buzz.h"

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

using GivenTopK = buzz::Policy<buzz::Given, buzz::TopK>;
using MassAndValues = buzz::Policy<buzz::Mixed<buzz::Mass, buzz::ValueNorm>, buzz::TopK>;

/// One call; what it gives out. Scores of the user's own are given after it.
template <class T, class P>
std::vector<float> call(buzz::BuzzCache<T, P>& cache, Numbers& numbers, int tokens) {
  const std::vector<float> q = numbers(tokens * query_heads * head_dim), k = numbers(tokens * kv_heads * head_dim),
                           v = numbers(tokens * kv_heads * head_dim);
  std::vector<float> out(q.size());
  const auto view = [&](const std::vector<float>& x, int heads) {
    return buzz::View<const float>(x.data(), tokens, heads, head_dim);
  };
  cache.attend(view(q, query_heads), view(k, kv_heads), view(v, kv_heads),
               buzz::View<float>(out.data(), tokens, query_heads, head_dim));
  if constexpr (std::is_same<P, GivenTopK>::value) {
    const std::vector<float> scores = numbers(kv_heads * cache.rows());
    cache.give(buzz::View<const float>(scores.data(), 1, kv_heads, cache.rows()));
  }
  return out;
}

/// Calls of 1, 2, 3, 1, 2, ... tokens, from the next token on; what they give out.
template <class T, class P>
std::vector<float> calls(buzz::BuzzCache<T, P>& cache, int count) {
  std::vector<float> all;
  for (int i = 0; i < count; ++i) {
    Numbers numbers(static_cast<std::uint32_t>(cache.next_position()));
    const std::vector<float> out = call(cache, numbers, 1 + i % max_chunk);
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

/// So small that it has evicted more than once after 20 calls.
template <class P, class F>
typename P::Options small(F&& change) {
  typename P::Options o = P::Options::for_rows(16, max_chunk);
  change(o);
  return o;
}

template <class T, class P, class F, class Change>
void one(F&& f, const char* name, const buzz::Rope& rope, Change&& change) {
  buzz::Shape shape;
  shape.query_heads = query_heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.max_chunk = max_chunk;
  f(name, buzz::BuzzCache<T, P>(shape, small<P>(change), rope));
}

/// f(name, cache): each cache of tests/data/saved, with nothing appended yet.
template <class F>
void for_each(F&& f) {
  using namespace buzz;
  Rope rope, compact;
  rope.base = compact.base = 10000;
  compact.positions = Positions::compact;
  const auto as_it_is = [](auto&) {};
  const auto kind = [](MassKind mass) { return [mass](auto& o) { o.mass = mass; }; };
  one<float, Beehive>(f, "accumulated", rope, as_it_is);
  one<float, Beehive>(f, "latest", rope, kind(MassKind::latest));
  one<float, HeavyHitter>(f, "mean", compact, kind(MassKind::mean));
  one<Eigen::half, HeavyHitter>(f, "newest", rope, kind(MassKind::newest));
  one<float, HeavyHitter>(f, "largest", rope, kind(MassKind::largest));
  one<float, Beehive>(f, "decayed", compact, kind(MassKind::decayed));
  one<std::int8_t, Beehive>(f, "int8", rope, as_it_is);
  one<Eigen::bfloat16, Tova>(f, "tova", rope, as_it_is);
  one<float, SnapKv>(f, "snap_kv", rope, [](auto& o) { o.queries = 3, o.window = 4, o.heavy = 9; });
  one<float, GivenTopK>(f, "given", rope, as_it_is);
  one<float, MassAndValues>(f, "mass_and_values", rope, as_it_is);
  one<float, DiverseBeehive>(f, "key_diversity", compact, as_it_is);
  one<float, KeyValueBeehive>(f, "keys_and_values", rope, as_it_is);
  one<float, KeyOutliers>(f, "key_outliers", rope, as_it_is);
  one<float, Strided>(f, "no_score", Rope(), as_it_is);
}

}  // namespace saved
