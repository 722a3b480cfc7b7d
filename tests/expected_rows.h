#pragma once

// What a score of the queries so far says of rows, and what the oracle says of them.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "buzz/score/score.h"
#include "oracle_twin.h"

namespace expected {

using Floats = std::vector<float>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// queries: [tokens, heads, dim], of tokens 0, 1, ...; rows: the keys as they came, and values, of one KV head, all of
/// them candidates but the first `first`; positions 2, 4, ... and the next token's is 2 * rows + 2.
template <class S>
std::vector<double> scored(S score, const Floats& queries, const Floats& keys, const Floats& values, int heads, int dim,
                           buzz::ShownRows shown, int first = 0) {
  const int n = static_cast<int>(keys.size()) / dim, tokens = static_cast<int>(queries.size()) / heads / dim;
  const int value_dim = n == 0 ? dim : static_cast<int>(values.size()) / n;
  shown.head_dim = dim;
  shown.value_dim = value_dim;
  shown.query_heads = heads;
  buzz::Unrotation turning(shown, true, true);
  buzz::QueryMoments moments(shown, turning.rotation(), 1, 0, 0, /*lengths*/ true);
  const buzz::RowsView<float> asked(buzz::View<const float>(queries.data(), tokens, heads, dim));
  moments.observe(0, tokens, buzz::FloatRowsOf<float>(asked));
  moments.add_up();
  score.reserve(1, n + 1);
  score.reserve_dims(dim, value_dim);
  score.reserve_queries(heads);
  std::vector<std::int32_t> positions;
  for (int r = 0; r < n; ++r) positions.push_back(2 * r + 2);
  Floats stored = keys;  // as the cache stores them
  const buzz::Rotation* rotation = moments.rotation();
  if (rotation != nullptr && shown.rope.keys != buzz::KeyStorage::raw)
    for (int r = 0; r < n; ++r) {
      Floats angles(static_cast<std::size_t>(rotation->dims()));
      rotation->angles(rotation->compact() ? r : 2 * r + 2, angles.data());
      rotation->rotate(angles.data(), stored.data() + r * dim);
    }
  const buzz::RowsView<float> k(buzz::View<const float>(stored.data(), 1, n, dim)),
      v(buzz::View<const float>(values.data(), 1, n, value_dim));
  const buzz::FloatRowsOf<float> ks(k), vs(v);
  std::vector<double> out(static_cast<std::size_t>(n - first));
  turning(ks, vs, buzz::View<const std::int32_t>(positions.data(), 1, 1, n),
          [&](const buzz::FloatRows* came, const buzz::FloatRows* seen) {
            score.importance({0, first, n - first, positions.data(), 2 * n + 2, &ks, &vs, came, seen, &moments},
                             out.data());
          });
  return out;
}

/// The score that make(options) makes says what the oracle says, in random shapes and ropes.
template <class Make>
void agrees(oracle::Options o, Make&& make) {
  oracle::Random random(29);
  const auto split = [](const Floats& x, int dim) {
    std::vector<oracle::Vector> all;
    for (auto row = x.begin(); row != x.end(); row += dim) all.emplace_back(row, row + dim);
    return all;
  };
  for (int i = 0; i < 300; ++i) {
    const int n = random.in(3, 40), first = random.in(0, n - 3),
              dim = i % 60 == 0 ? random.in(257, 300) : random.in(1, 24);
    const int heads = random.in(1, 4), tokens = random.in(1, 12), value_dim = random.one_in(2) ? dim : random.in(1, 20);
    const auto numbers = [&](int count) {
      Floats x(static_cast<std::size_t>(count));
      for (float& f : x) f = random.real();
      return x;
    };
    const Floats queries = numbers(tokens * heads * dim), keys = numbers(n * dim), values = numbers(n * value_dim);
    buzz::ShownRows shown;
    if (dim > 1 && !random.one_in(4)) {
      buzz::Rope& rope = shown.rope;
      rope.base = random.of({10000., 50.});
      rope.dims = 2 * random.in(1, dim / 2);
      rope.first = random.in(0, dim - rope.dims);
      rope.pairs = random.of({buzz::Pairs::halves, buzz::Pairs::interleaved});
      rope.positions = random.of({buzz::Positions::logical, buzz::Positions::compact});
      if (rope.positions == buzz::Positions::compact)
        rope.keys = random.of({buzz::KeyStorage::raw, buzz::KeyStorage::rotated});
      rope.attention_factor = random.of({1., 1.375, 0.5});
    }
    shown.scale = random.of({0., 0.75});
    o.scale = shown.scale == 0 ? 1 / std::sqrt(static_cast<double>(dim)) : shown.scale;
    o.horizon = random.of({1, 5, 512});
    o.times_value = !random.one_in(3);
    o.reach = random.of({1, 100, 10000});
    const oracle::Rotation rotation = oracle::rotation_of(shown.rope, dim, false);
    oracle::Turning turning;
    turning.to = [&](const oracle::Vector& x, double position) { return rotated_to(x, position, rotation); };
    const std::size_t half = rotation.frequencies.size();
    for (std::size_t p = 0; p < half; ++p)
      turning.pairs.emplace_back(rotation.first + (rotation.halves ? p : 2 * p),
                                 rotation.first + (rotation.halves ? p + half : 2 * p + 1));
    std::vector<oracle::Vector> seen = split(keys, dim);
    for (std::size_t r = 0; r < seen.size(); ++r)
      seen[r] =
          rotated_to(seen[r], rotation.compact ? static_cast<double>(r) : 2. * static_cast<double>(r) + 2, rotation);
    std::vector<std::vector<oracle::Vector>> asked(static_cast<std::size_t>(heads));
    std::size_t q = 0;
    for (const oracle::Vector& x : split(queries, dim)) asked[q++ % asked.size()].push_back(x);
    const std::vector<double> all = oracle::expecting(seen, split(values, value_dim), asked,
                                                      rotation.compact ? n : 2 * n + 2, first, n, turning, o),
                              got = scored(make(o), queries, keys, values, heads, dim, shown, first);
    for (std::size_t r = 0; r < got.size(); ++r)
      ASSERT_NEAR(got[r], all[r + static_cast<std::size_t>(first)], 1e-4) << "case " << i << " row " << r;
  }
}

}  // namespace expected
