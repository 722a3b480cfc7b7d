// K in two layouts that engines have, token-major and head-major: one choice of rows, moved in place in both.
#include <buzz.h>

#include <cstdio>
#include <vector>

#include "engines/made_up.h"

namespace {

constexpr int query_heads = 8, kv_heads = 2, head_dim = 16, tokens = 2000;

/// Each row of each head has to hold the key of the position that the evictor has for it; at(head, row) finds it.
template <class At>
int wrong_rows(const buzz::Evictor& evictor, const std::vector<float>& keys, At&& at) {
  int wrong = 0;
  for (int h = 0; h < kv_heads; ++h)
    for (int r = 0; r < evictor.rows(); ++r)
      wrong += keys[static_cast<std::size_t>(at(h, r) * head_dim + 3)] != made_up::key(h, evictor.positions(h)[r], 3);
  return wrong;
}

}  // namespace

int main() {
  buzz::HeavyHitterOptions options;
  options.window = 32;
  options.heavy = 32;
  options.threshold = 64;
  options.attention = buzz::AttentionKind::mean;
  buzz::Evictor evictor(buzz::heavy_hitter(options), kv_heads);
  const int capacity = evictor.capacity();

  const auto size = static_cast<std::size_t>(capacity) * kv_heads * head_dim;
  std::vector<float> by_token(size), by_head(size);  // [capacity, kv_heads, head_dim], [kv_heads, capacity, head_dim]
  // Both seen as [kv_heads, capacity, head_dim]: the strides are all that differs.
  const buzz::View<float> token_major(by_token.data(), kv_heads, capacity, head_dim, head_dim, kv_heads * head_dim);
  const buzz::View<float> head_major(by_head.data(), kv_heads, capacity, head_dim);

  std::vector<float> probabilities;
  int evictions = 0, peak = 0;
  for (int t = 0; t < tokens; ++t) {
    const int row = evictor.rows();
    for (int h = 0; h < kv_heads; ++h)
      for (int d = 0; d < head_dim; ++d) token_major.row(h, row)[d] = head_major.row(h, row)[d] = made_up::key(h, t, d);
    evictor.append(1);

    probabilities.clear();  // [query_heads, 1, rows]
    for (int q = 0; q < query_heads; ++q)
      for (std::int32_t position : evictor.positions(q / (query_heads / kv_heads)))
        probabilities.push_back(made_up::attention(q, t, position));
    evictor.observe(buzz::view(probabilities, query_heads, 1, evictor.rows()));

    peak = evictor.rows() > peak ? evictor.rows() : peak;
    if (!evictor.should_evict()) continue;
    const buzz::KeptRows& kept = evictor.select();
    buzz::compact(kept, token_major);
    buzz::compact(kept, head_major);
    ++evictions;
  }
  std::printf("%d tokens, %d evictions, %d rows at most of %d\n", tokens, evictions, peak, capacity);
  for (int h = 0; h < kv_heads; ++h) {
    std::printf("head %d holds", h);
    for (int r = 0; r < 64; r += 8) std::printf(" %d", static_cast<int>(evictor.positions(h)[r]));
    std::printf(" ..., every eighth of its rows\n");
  }
  const int wrong_by_token = wrong_rows(evictor, by_token, [](int h, int r) { return r * kv_heads + h; });
  const int wrong_by_head = wrong_rows(evictor, by_head, [&](int h, int r) { return h * capacity + r; });
  std::printf("wrong rows: %d token-major, %d head-major\n", wrong_by_token, wrong_by_head);
  return wrong_by_token + wrong_by_head == 0 ? 0 : 1;
}
