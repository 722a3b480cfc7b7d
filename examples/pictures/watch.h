// A sequence read over a cache of which one layer is watched: its rows after each step, and what each eviction took.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tiny_llama/cache.h"
#include "tiny_llama/llama.h"

namespace pictures {

using Tokens = std::vector<std::int32_t>;

struct Head {
  std::vector<std::int32_t> positions;  // ascending
  std::vector<double> scores;           // as many, or none
};

/// The watched layer at one moment.
struct Moment {
  int tokens = 0;  // read so far
  buzz::Regions regions;
  std::vector<Head> heads;
};

struct Eviction {
  Moment before, after;
};

struct Watch {
  int capacity = 0;
  std::vector<std::pair<int, int>> rows;  // tokens read and rows held, before and after each eviction
  std::vector<Eviction> evictions;
  Moment end;
};

/// Its steps are BuzzCache::attend's, one by one. The watch must outlive it and its forks.
class WatchedCache final : public tiny_llama::CacheOf<float> {
 public:
  WatchedCache(const tiny_llama::Config& c, const buzz::Policy& policy, int max_chunk, int layer, Watch& watch)
      : CacheOf(c, policy, buzz::Positions::logical, max_chunk), layer_(layer), watch_(watch) {
    watch.capacity = cache_.layer(layer).capacity();
  }

  std::unique_ptr<tiny_llama::Cache> fork() const override {
    return std::unique_ptr<tiny_llama::Cache>(new WatchedCache(*this));
  }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    if (layer != layer_) return CacheOf::attend(layer, q, k, v, out, run);
    buzz::BuzzCache<float>& cache = cache_.layer(layer);
    cache.append(k, v);
    cache.attend(q, out, run);
    cache.observe();
    watch_.rows.push_back({cache.next_position(), cache.rows()});
    watch_.end = moment();
    if (!cache.evict()) return;
    watch_.rows.push_back({cache.next_position(), cache.rows()});
    watch_.evictions.push_back({watch_.end, moment()});
    watch_.end = moment();
  }

 private:
  WatchedCache(const WatchedCache&) = default;

  Moment moment() const {
    const buzz::BuzzCache<float>& cache = cache_.layer(layer_);
    Moment m{cache.next_position(), cache.regions(), {}};
    for (int h = 0; h < cache.shape().kv_heads; ++h) {
      const auto positions = cache.positions(h);
      const auto scores = cache.scores(h);
      m.heads.push_back({{positions.begin(), positions.end()}, {scores.begin(), scores.end()}});
    }
    return m;
  }

  int layer_;
  Watch& watch_;
};

/// Reads the tokens in calls of max_chunk, over the policy, and watches a layer.
inline Watch read(const tiny_llama::Model& model, const Tokens& tokens, const buzz::Policy& policy, int max_chunk,
                  int layer) {
  Watch watch;
  tiny_llama::Llama llama(model, std::make_unique<WatchedCache>(model.config, policy, max_chunk, layer, watch));
  for (auto at = tokens.begin(); at != tokens.end();) {
    const auto end = tokens.end() - at > max_chunk ? at + max_chunk : tokens.end();
    llama.forward(Tokens(at, end));
    at = end;
  }
  return watch;
}

}  // namespace pictures
