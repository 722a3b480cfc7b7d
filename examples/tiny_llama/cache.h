// One face for every cache of buzz: the forward pass need not know what it stores and evicts.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "buzz/buzz_cache.h"
#include "buzz/executor.h"
#include "buzz/policies.h"
#include "buzz/view.h"
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

/// Sliding layers hold their windows; the policy is the global ones'.
template <class T>
class CacheOf : public Cache {
 public:
  /// threads: into how many pieces attention is cut for whoever runs it. Errors: what the policy refuses; with compact
  /// positions, a capacity past the model's context.
  CacheOf(const Config& c, const buzz::Policy& policy, buzz::Positions positions, int max_chunk, int threads = 1)
      : window_(c.window) {
    buzz::AttentionOptions attention;
    attention.threads = threads;
    const buzz::Shape shape{c.query_heads, c.kv_heads, c.head_dim, max_chunk};
    buzz::StreamingOptions newest;  // with the token of a call, a window
    newest.sink = newest.threshold = 0;
    newest.window = c.window - 1;
    for (int i = 0; i < c.layers; ++i) {
      if (c.slides(i))
        layers_.emplace_back(shape, buzz::streaming(newest), sliding_rope_of(c), attention);
      else
        layers_.emplace_back(shape, policy, rope_of(c, positions), attention);
      slides_.push_back(c.slides(i));
    }
  }

  std::unique_ptr<Cache> fork() const override { return std::unique_ptr<Cache>(new CacheOf(*this)); }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    buzz::BuzzCache<T>& cache = layers_[index(layer)];
    const int tokens = q.shape(0);
    if (!slides_[index(layer)] || cache.rows() + tokens <= window_) return cache.attend(q, k, v, out, run);
    for (int i = 0; i < tokens; ++i)  // one by one: what leaves the window differs from token to token
      cache.attend(token(q, i), token(k, i), token(v, i), token(out, i), run);
  }
  void check_room(int tokens) const override {
    for (const buzz::BuzzCache<T>& layer : layers_) {
      layer.evictor().check_append(tokens);
      const buzz::Rope& rope = layer.rope();
      if (rope.positions == buzz::Positions::logical)
        buzz::require_room("position", layer.next_position() + tokens, tokens, rope.max_position);
    }
  }
  int max_chunk() const override { return layers_[0].shape().max_chunk; }
  int layers() const override { return static_cast<int>(layers_.size()); }
  int rows(int layer) const override { return layers_[index(layer)].rows(); }
  int capacity(int layer) const override { return layers_[index(layer)].capacity(); }
  std::size_t bytes(int layer) const override { return layers_[index(layer)].bytes(); }

 protected:
  CacheOf(const CacheOf& other) : window_(other.window_), slides_(other.slides_) {
    for (const buzz::BuzzCache<T>& layer : other.layers_) layers_.push_back(layer.fork());
  }

  std::vector<buzz::BuzzCache<T>> layers_;

 private:
  static std::size_t index(int layer) { return static_cast<std::size_t>(layer); }
  template <class U>
  static buzz::View<U> token(buzz::View<U> rows, int i) {
    return {rows.row(i, 0), 1, rows.shape(1), rows.shape(2)};
  }

  int window_;
  std::vector<bool> slides_;  // [layers]
};

}  // namespace tiny_llama
