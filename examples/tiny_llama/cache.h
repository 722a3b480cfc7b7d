// One face for every cache of buzz: the forward pass need not know what it stores and evicts.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "buzz/model_cache.h"
#include "buzz/view.h"
#include "tiny_llama/model.h"

namespace tiny_llama {

/// The caches of all layers of one sequence.
class Cache {
 public:
  virtual ~Cache() = default;
  /// A deep copy; the two live apart.
  virtual std::unique_ptr<Cache> fork() const = 0;
  /// BuzzCache::attend of that layer. q, out: [tokens, query_heads, head_dim]; k, v: [tokens, kv_heads, head_dim].
  virtual void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
                      buzz::View<float> out) = 0;
  virtual int max_chunk() const = 0;
  virtual int layers() const = 0;
  virtual int rows(int layer) const = 0;           // held now
  virtual int capacity(int layer) const = 0;       // most rows that there can be
  virtual std::size_t bytes(int layer) const = 0;  // allocated
};

/// The model's own rotation.
inline buzz::Rope rope_of(const Config& c, buzz::Positions positions) {
  buzz::Rope rope;
  rope.base = c.rope_base;
  rope.dims = c.rope_dims;
  rope.pairs = buzz::Pairs::interleaved;  // as GGUF's llama has the rows of q and k
  rope.positions = positions;
  rope.max_position = c.context;
  return rope;
}

template <class T>
class CacheOf : public Cache {
 public:
  /// Errors: what the policy refuses; with compact positions, a capacity past the model's context.
  CacheOf(const Config& c, const buzz::Policy& policy, buzz::Positions positions, int max_chunk)
      : cache_({c.query_heads, c.kv_heads, c.head_dim, max_chunk},
               std::vector<buzz::Policy>(static_cast<std::size_t>(c.layers), policy), rope_of(c, positions)) {}

  std::unique_ptr<Cache> fork() const override { return std::unique_ptr<Cache>(new CacheOf(cache_.fork())); }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out) override {
    cache_.layer(layer).attend(q, k, v, out);
  }
  int max_chunk() const override { return cache_.layer(0).shape().max_chunk; }
  int layers() const override { return cache_.layers(); }
  int rows(int layer) const override { return cache_.layer(layer).rows(); }
  int capacity(int layer) const override { return cache_.layer(layer).capacity(); }
  std::size_t bytes(int layer) const override { return cache_.layer(layer).bytes(); }

 protected:
  explicit CacheOf(buzz::ModelCache<T> cache) : cache_(std::move(cache)) {}

  buzz::ModelCache<T> cache_;
};

}  // namespace tiny_llama
