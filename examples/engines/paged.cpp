// Four sequences of a paged engine grow in turn, out of a pool that could not hold two of them without eviction.
#include <buzz.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "engines/made_up.h"
#include "engines/pages.h"

namespace {

constexpr int query_heads = 4, kv_heads = 2, head_dim = 8, page_rows = 16, pages = 32, sequences = 4, tokens = 400;

buzz::BeehiveOptions options() {
  buzz::BeehiveOptions o;
  o.sink = 4;
  o.window = 32;
  o.threshold = 90;
  return o;
}

struct Sequence {
  explicit Sequence(engines::PagePool& pool, int index) : keys(pool), first(index * 10000) {}

  void decode() {
    const int row = evictor.rows(), position = evictor.next_position();
    keys.resize(row + 1);
    for (int h = 0; h < kv_heads; ++h)
      for (int d = 0; d < head_dim; ++d) keys.row(h, row)[d] = made_up::key(h, first + position, d);
    evictor.append(1);
    std::vector<float> probabilities;  // [query_heads, 1, rows]
    for (int q = 0; q < query_heads; ++q)
      for (std::int32_t p : evictor.positions(q / (query_heads / kv_heads)))
        probabilities.push_back(made_up::attention(q, position, first + p));
    evictor.observe(buzz::view(probabilities, query_heads, 1, evictor.rows()));
  }

  int wrong_rows() {
    int wrong = 0;
    for (int h = 0; h < kv_heads; ++h)
      for (int r = 0; r < evictor.rows(); ++r)
        wrong += keys.row(h, r)[3] != made_up::key(h, first + evictor.positions(h)[r], 3);
    return wrong;
  }

  buzz::Evictor evictor{buzz::beehive(options()), kv_heads};
  engines::PagedRows keys;
  int first;  // so that no two sequences hold the same
};

}  // namespace

int main() {
  engines::PagePool pool(pages, kv_heads, page_rows, head_dim);
  std::vector<std::unique_ptr<Sequence>> all;
  for (int i = 0; i < sequences; ++i) all.push_back(std::make_unique<Sequence>(pool, i));
  int evictions = 0, given_back = 0, fewest_free = pages;
  for (int t = 0; t < tokens; ++t)
    for (auto& s : all) {
      s->decode();
      fewest_free = pool.free() < fewest_free ? pool.free() : fewest_free;
      if (!s->evictor.should_evict()) continue;
      const int before = s->keys.pages();
      s->keys.compact(s->evictor.select());
      given_back += before - s->keys.pages();
      ++evictions;
    }
  std::printf("%d sequences of %d tokens would take %d pages; %d were enough, of which %d were always free\n",
              sequences, tokens, sequences * ((tokens + page_rows - 1) / page_rows), pages, fewest_free);
  std::printf("%d evictions gave %d pages back\n", evictions, given_back);
  int wrong = 0;
  for (auto& s : all) {
    wrong += s->wrong_rows();
    std::printf("%d rows in %d pages\n", s->keys.rows(), s->keys.pages());
  }
  std::printf("wrong rows: %d\n", wrong);
  return wrong == 0 ? 0 : 1;
}
