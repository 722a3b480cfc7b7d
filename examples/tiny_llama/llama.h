// The forward pass of a Llama model (RMSNorm, RoPE, grouped-query attention, SwiGLU) over buzz's cache.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "buzz/view.h"
#include "tiny_llama/cache.h"
#include "tiny_llama/model.h"

namespace tiny_llama {

/// Which tokens' logits a forward pass makes.
enum class Logits { last, all };

/// One sequence read by the model.
class Llama {
 public:
  /// The model must outlive it.
  Llama(const Model& model, std::unique_ptr<Cache> cache)
      : model_(model), cache_(std::move(cache)), scratch_(model.config, cache_->max_chunk()) {}

  /// Reads the next 1 to cache().max_chunk() tokens; returns the logits after the last one, [1, vocab], or after each,
  /// [tokens, vocab], valid until the next call. Errors leave the sequence as it was.
  Eigen::Map<const Matrix> forward(const std::vector<std::int32_t>& tokens, Logits wanted = Logits::last) {
    const int n = check(tokens);
    const Config& c = model_.config;
    auto x = scratch_.x.topRows(n), y = scratch_.y.topRows(n);
    auto q = scratch_.q.topRows(n), k = scratch_.k.topRows(n), v = scratch_.v.topRows(n);
    auto mixed = scratch_.mixed.topRows(n), gate = scratch_.gate.topRows(n), up = scratch_.up.topRows(n);

    for (int i = 0; i < n; ++i) x.row(i) = model_.weights.embedding.row(tokens[static_cast<std::size_t>(i)]);
    for (int i = 0; i < c.layers; ++i) {
      const LayerWeights& w = model_.weights.layers[static_cast<std::size_t>(i)];
      rms_norm(x, w.attention_norm, y);
      q.noalias() = y * w.q.transpose();
      k.noalias() = y * w.k.transpose();
      v.noalias() = y * w.v.transpose();
      attend(i, n);
      x.noalias() += mixed * w.o.transpose();

      rms_norm(x, w.ffn_norm, y);
      gate.noalias() = y * w.gate.transpose();
      up.noalias() = y * w.up.transpose();
      gate.array() *= up.array() / (1.0f + (-gate.array()).exp());  // silu(gate) * up
      x.noalias() += gate * w.down.transpose();
    }
    const int outputs = wanted == Logits::all ? n : 1;
    rms_norm(x.bottomRows(outputs), model_.weights.norm, y.topRows(outputs));
    scratch_.logits.topRows(outputs).noalias() = y.topRows(outputs) * model_.weights.head().transpose();
    return {scratch_.logits.data(), outputs, c.vocab};
  }

  /// The same sequence once more, to be read on in another way: a copy of the cache.
  Llama fork() const { return Llama(model_, cache_->fork()); }
  const Cache& cache() const { return *cache_; }

 private:
  struct Scratch {  // n = max_chunk
    Scratch(const Config& c, int n)
        : x(n, c.dim),
          y(n, c.dim),
          q(n, c.query_heads * c.head_dim),
          k(n, c.kv_heads * c.head_dim),
          v(n, c.kv_heads * c.head_dim),
          mixed(n, c.query_heads * c.head_dim),
          gate(n, c.ffn),
          up(n, c.ffn),
          logits(n, c.vocab) {}
    Matrix x, y;      // [n, dim]: the residual stream, and what is normalised of it
    Matrix q;         // [n, query_heads * head_dim]
    Matrix k, v;      // [n, kv_heads * head_dim]
    Matrix mixed;     // [n, query_heads * head_dim]: what attention gives
    Matrix gate, up;  // [n, ffn]
    Matrix logits;    // [n, vocab]
  };

  int check(const std::vector<std::int32_t>& tokens) const {
    const auto n = static_cast<long long>(tokens.size());
    buzz::require_range("tokens", n, 1, scratch_.x.rows());
    for (std::int32_t id : tokens) buzz::require_range("token id", id, 0, model_.config.vocab - 1);
    return static_cast<int>(n);
  }

  /// mixed = attention of layer i over its cache, which rotates q and k, appends, and evicts where it should.
  void attend(int i, int n) {
    const Config& c = model_.config;
    const buzz::View<float> q(scratch_.q.data(), n, c.query_heads, c.head_dim);
    const buzz::View<float> k(scratch_.k.data(), n, c.kv_heads, c.head_dim);
    const buzz::View<float> v(scratch_.v.data(), n, c.kv_heads, c.head_dim);
    cache_->attend(i, q, k, v, {scratch_.mixed.data(), n, c.query_heads, c.head_dim});
  }

  template <class X, class Y>
  void rms_norm(const X& x, const Vector& weight, Y&& y) const {
    for (Eigen::Index i = 0; i < x.rows(); ++i) {
      const float mean = x.row(i).squaredNorm() / static_cast<float>(x.cols());
      y.row(i) = x.row(i).cwiseProduct(weight) / std::sqrt(mean + model_.config.norm_eps);
    }
  }

  const Model& model_;
  std::unique_ptr<Cache> cache_;
  Scratch scratch_;
};

}  // namespace tiny_llama
