// One face for every cache of buzz: the forward pass need not know what it stores and evicts.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "buzz/executor.h"
#include "buzz/model_cache.h"
#include "buzz/view.h"
#include "instances.h"
#include "tiny_llama/config.h"

namespace tiny_llama {

/// The caches of all layers of one sequence.
class Cache {
 public:
  virtual ~Cache() = default;
  /// A deep copy; the two live apart.
  virtual std::unique_ptr<Cache> fork() const = 0;
  /// BuzzCache::attend of that layer. q, out: [tokens, query_heads, head_dim]; k, v: [tokens, kv_heads, head_dim].
  virtual void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
                      buzz::View<float> out, buzz::Executor run) = 0;
  /// ModelCache::evict_to. Errors: it is not to be had here.
  virtual bool evict_to(int) { buzz::fail("evict_to", "asked for", "a cache that can"); }
  /// Errors: a layer's attend() would refuse so many tokens, and others would not.
  virtual void check_room(int) const {}
  virtual int max_chunk() const = 0;
  virtual int layers() const = 0;
  virtual int rows(int layer) const = 0;           // held now
  virtual int capacity(int layer) const = 0;       // most rows that there can be
  virtual std::size_t bytes(int layer) const = 0;  // allocated
};

/// The model's own rotation in its global layers.
inline buzz::Rope rope_of(const Config& c, buzz::Positions positions) {
  buzz::Rope rope;
  rope.base = c.rope_base;
  rope.dims = c.rope_dims;
  rope.pairs = c.rope_pairs;
  rope.positions = positions;
  rope.max_position = c.context;
  return rope;
}
/// That of the layers that slide: as far as their windows reach, no position is far from another.
inline buzz::Rope sliding_rope_of(const Config& c) {
  buzz::Rope rope = rope_of(c, buzz::Positions::logical);
  rope.base = c.sliding_rope_base;
  rope.max_position = (std::numeric_limits<int>::max)();
  return rope;
}

/// Of which model a calibration has to be.
inline buzz::CalibratedModel calibrated_model(const Config& c) {
  return {c.name, c.layers, c.kv_heads, c.head_dim, c.head_dim};
}

/// The layers of a model: the policy is the global ones'. Errors: a calibration of another model.
inline std::vector<buzz::Layer> layers_of(const Config& c, const buzz::Policy& policy, buzz::Positions positions,
                                          int max_chunk, int threads) {
  if (const buzz::Calibration* weights = policy.score.calibration()) weights->require_model(calibrated_model(c));
  buzz::AttentionOptions attention;
  attention.threads = threads;
  const buzz::Shape shape{c.query_heads, c.kv_heads, c.head_dim, max_chunk};
  std::vector<buzz::Layer> layers;
  for (int i = 0; i < c.layers; ++i) {
    if (c.slides(i))
      layers.push_back(buzz::sliding_layer(shape, c.window, sliding_rope_of(c), attention));
    else
      layers.push_back({shape, policy, rope_of(c, positions), attention});
  }
  return layers;
}

template <class T>
class CacheOf : public Cache {
 public:
  /// threads: into how many pieces attention is cut for whoever runs it. Errors: what the policy refuses; with compact
  /// positions, a capacity past the model's context.
  CacheOf(const Config& c, const buzz::Policy& policy, buzz::Positions positions, int max_chunk, int threads = 1)
      : cache_(layers_of(c, policy, positions, max_chunk, threads)) {}

  std::unique_ptr<Cache> fork() const override { return std::unique_ptr<Cache>(new CacheOf(*this)); }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    cache_.layer(layer).attend(q, k, v, out, run);
    if (layer == layers() - 1) cache_.evict();  // where all layers keep one list of rows
  }
  bool evict_to(int to) override { return cache_.evict_to(to); }
  void check_room(int tokens) const override {
    for (int i = 0; i < layers(); ++i) {
      const buzz::BuzzCache<T>& layer = cache_.layer(i);
      layer.evictor().check_append(tokens);
      const buzz::Rope& rope = layer.rope();
      if (rope.positions == buzz::Positions::logical)
        buzz::require_room("position", layer.next_position() + tokens, tokens, rope.max_position);
    }
  }
  int max_chunk() const override { return cache_.layer(0).shape().max_chunk; }
  int layers() const override { return cache_.layers(); }
  int rows(int layer) const override { return cache_.layer(layer).rows(); }
  int capacity(int layer) const override { return cache_.layer(layer).capacity(); }
  std::size_t bytes(int layer) const override { return cache_.layer(layer).bytes(); }

 protected:
  CacheOf(const CacheOf& other) : cache_(other.cache_.fork()) {}

  buzz::ModelCache<T> cache_;
};
extern template class CacheOf<float>;
extern template class CacheOf<Eigen::half>;
extern template class CacheOf<Eigen::bfloat16>;

}  // namespace tiny_llama
