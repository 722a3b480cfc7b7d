// The forward pass of a Llama model (RMSNorm, RoPE, grouped-query attention, SwiGLU) or of a Gemma 3 over buzz's cache.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <vector>

#include "buzz/executor.h"
#include "tiny_llama/cache.h"
#include "tiny_llama/model.h"

namespace tiny_llama {

/// One sequence read by the model.
class Llama {
 public:
  /// The model must outlive it, and so must whoever runs its pieces of work; the results are the same bits.
  Llama(const Model& model, std::unique_ptr<Cache> cache, buzz::Executor run = {});

  /// Reads the next 1 to cache().max_chunk() tokens; returns the logits after each of the last `outputs` of them, 0 to
  /// all, [outputs, vocab], valid until the next call. Errors leave the sequence as it was.
  Eigen::Map<const Matrix> forward(const std::vector<std::int32_t>& tokens, int outputs = 1);

  /// The same sequence once more, to be read on in another way: a copy of the cache.
  Llama fork() const { return Llama(model_, cache_->fork(), run_); }
  const Cache& cache() const { return *cache_; }
  /// Leaves so many rows of what was read in each layer that is not sliding; see ModelCache::evict_to.
  bool evict_to(int rows) { return cache_->evict_to(rows); }

 private:
  struct Scratch {  // n = max_chunk
    Scratch(const Config& c, int n);
    Matrix x, y;      // [n, dim]: the residual stream, and what goes into a block and comes out of it
    Matrix q;         // [n, query_heads * head_dim]
    Matrix k, v;      // [n, kv_heads * head_dim]
    Matrix mixed;     // [n, query_heads * head_dim]: what attention gives
    Matrix gate, up;  // [n, ffn]
    Matrix logits;    // [as many as were ever wanted, vocab]
  };

  int check(const std::vector<std::int32_t>& tokens) const;
  void embed(const std::vector<std::int32_t>& tokens);
  /// y = attention of layer i over its cache, which rotates q and k, appends, and evicts where it should.
  void attention(const LayerWeights& w, int i, int n);
  /// y = down(activation(gate(y)) * up(y)).
  void feed_forward(const LayerWeights& w, int n);

  const Model& model_;
  std::unique_ptr<Cache> cache_;
  buzz::Executor run_;
  Scratch scratch_;
};

}  // namespace tiny_llama
