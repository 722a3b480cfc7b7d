// Rows 6 to 9 and 14 of the table: what the cache costs beside attention.
#pragma once

#include <benchmark/benchmark.h>

#include "authors_way.h"
#include "problem.h"
#include "ratio.h"

namespace bench {

/// One token's append and bookkeeping; the cache starts anew, untimed, before it would evict.
inline Side appending(buzz::BuzzCache<float>& cache, const std::vector<float>& kv, const Layer& layer) {
  return [&cache, &kv, layer] {
    const auto token = buzz::view(kv, 1, layer.kv_heads, layer.head_dim);
    cache.reset();
    for (int i = 0; i < paper_rows - 100; ++i) cache.append(token, token);
    return seconds([&] {
             for (int i = 0; i < 100; ++i) cache.append(token, token);
           }) /
           100;
  };
}

/// A policy's whole bookkeeping of a token, its share of an eviction included; K and V apart.
inline Side bookkeeping(buzz::Evictor& evictor, const std::vector<float>& sums, int tokens) {
  return [&evictor, &sums, tokens] {
    return seconds([&] {
             for (int i = 0; i < tokens; ++i) {
               evictor.append(1);
               evictor.observe_sums(buzz::View<const float>(sums.data(), 1, evictor.kv_heads(), evictor.rows()));
               if (evictor.should_evict()) benchmark::DoNotOptimize(evictor.select().size());
             }
           }) /
           tokens;
  };
}

inline void eviction_rows(std::vector<Ratio>& table) {
  for (const Layer& layer : {grouped, ungrouped, small_layer}) {
    Decode<float> full(layer, paper_rows);
    const Side attend = repeated([&] { full.attend(); });
    const auto kv = random_values<float>(count(1, layer.kv_heads, layer.head_dim), 7);
    const buzz::Shape shape{layer.query_heads, layer.kv_heads, layer.head_dim};
    const std::string where = layer.name();

    buzz::BuzzCache<float> attention_cache(shape, buzz::beehive(), buzz::Rope{10000.0});
    table.push_back(compare("6 append / attend at 564 rows, beehive, " + where, Goal::at_most(0.02),
                            appending(attention_cache, kv, layer), attend));
    buzz::BuzzCache<float> diverse_cache(shape, buzz::diverse_beehive(), buzz::Rope{10000.0});
    table.push_back(compare("6 append / attend at 564 rows, diverse_beehive, " + where, Goal::at_most(0.02),
                            appending(diverse_cache, kv, layer), attend));

    Eviction<float> eviction(layer);
    const Side evict = [&] {
      eviction.prepare();
      return seconds([&] {
        eviction.select();
        eviction.compact();
      });
    };
    table.push_back(compare("7 select + compact, a token / attend, " + where, Goal::at_most(0.02), evict, attend,
                            1.0 / eviction.tokens()));
    buzz::BuzzCache<float> outliers(shape, buzz::key_outliers(buzz::KeyOutliersOptions::for_rows(paper_rows + 1)),
                                    buzz::Rope{10000.0});
    const Side keep_outliers = [&] {
      const auto token = buzz::view(kv, 1, layer.kv_heads, layer.head_dim);
      return seconds([&] {
               for (int i = 0; i < 640; ++i) {
                 outliers.append(token, token);
                 outliers.evict();
               }
             }) /
             640;
    };
    keep_outliers();  // to where it evicts as it will for ever
    table.push_back(compare("7 append + select + compact, key_outliers, a token / attend, " + where, Goal::none(),
                            keep_outliers, attend));
    table.push_back(compare("8 memmove / compact, same bytes, " + where, Goal::at_least(0.85),
                            repeated([&] { eviction.move_bytes(); }), repeated([&] { eviction.compact(); })));
  }

  buzz::Evictor buzzing(buzz::beehive(), grouped.kv_heads);
  buzz::HeavyHitterOptions h2o_options;  // the same rows at most
  h2o_options.heavy = paper_rows - h2o_options.window - 1;
  buzz::Evictor h2o(buzz::heavy_hitter(h2o_options), grouped.kv_heads);
  const auto sums = random_sums(count(1, grouped.kv_heads, paper_rows + 1), 8);
  bookkeeping(h2o, sums, 2 * paper_rows)();  // to where each evicts as it will for ever
  bookkeeping(buzzing, sums, 2 * paper_rows)();
  table.push_back(compare("9 policy a token, H2O / BUZZ, " + grouped.name(), Goal::at_least(20),
                          bookkeeping(h2o, sums, 50), bookkeeping(buzzing, sums, 2000)));
  authors_way(table);
}

}  // namespace bench
