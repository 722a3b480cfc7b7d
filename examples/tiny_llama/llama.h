// The forward pass of a Llama model (RMSNorm, RoPE, grouped-query attention, SwiGLU) or of a Gemma 3 over buzz's cache.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "buzz/executor.h"
#include "buzz/view.h"
#include "tiny_llama/cache.h"
#include "tiny_llama/model.h"

namespace tiny_llama {

/// One sequence read by the model.
class Llama {
 public:
  /// The model must outlive it, and so must whoever runs its pieces of work; the results are the same bits.
  Llama(const Model& model, std::unique_ptr<Cache> cache, buzz::Executor run = {})
      : model_(model), cache_(std::move(cache)), run_(run), scratch_(model.config, cache_->max_chunk()) {}

  /// Reads the next 1 to cache().max_chunk() tokens; returns the logits after each of the last `outputs` of them, 0 to
  /// all, [outputs, vocab], valid until the next call. Errors leave the sequence as it was.
  Eigen::Map<const Matrix> forward(const std::vector<std::int32_t>& tokens, int outputs = 1) {
    const int n = check(tokens);
    buzz::require_range("outputs", outputs, 0, n);
    cache_->check_room(n);
    const Config& c = model_.config;
    auto x = scratch_.x.topRows(n), y = scratch_.y.topRows(n);
    embed(tokens);
    for (int i = 0; i < c.layers; ++i) {
      const LayerWeights& w = model_.weights.layers[static_cast<std::size_t>(i)];
      rms_norm(x, w.attention_norm, y);
      attention(w, i, n);
      if (w.post_attention_norm.size() != 0) rms_norm(y, w.post_attention_norm, y);
      x += y;
      rms_norm(x, w.ffn_norm, y);
      feed_forward(w, n);
      if (w.post_ffn_norm.size() != 0) rms_norm(y, w.post_ffn_norm, y);
      x += y;
    }
    if (outputs == 0) return {nullptr, 0, c.vocab};
    rms_norm(x.bottomRows(outputs), model_.weights.norm, y.topRows(outputs));
    if (scratch_.logits.rows() < outputs) scratch_.logits.resize(outputs, c.vocab);
    multiply(y.topRows(outputs), {{model_.weights.head(), scratch_.logits.topRows(outputs)}}, run_);
    return {scratch_.logits.data(), outputs, c.vocab};
  }

  /// The same sequence once more, to be read on in another way: a copy of the cache.
  Llama fork() const { return Llama(model_, cache_->fork(), run_); }
  const Cache& cache() const { return *cache_; }
  /// Leaves so many rows of what was read in each layer that is not sliding; see ModelCache::evict_to.
  bool evict_to(int rows) { return cache_->evict_to(rows); }

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
          up(n, c.ffn) {}
    Matrix x, y;      // [n, dim]: the residual stream, and what goes into a block and comes out of it
    Matrix q;         // [n, query_heads * head_dim]
    Matrix k, v;      // [n, kv_heads * head_dim]
    Matrix mixed;     // [n, query_heads * head_dim]: what attention gives
    Matrix gate, up;  // [n, ffn]
    Matrix logits;    // [as many as were ever wanted, vocab]
  };

  int check(const std::vector<std::int32_t>& tokens) const {
    const auto n = static_cast<long long>(tokens.size());
    buzz::require_range("tokens", n, 1, scratch_.x.rows());
    for (std::int32_t id : tokens) buzz::require_range("token id", id, 0, model_.config.vocab - 1);
    return static_cast<int>(n);
  }

  void embed(const std::vector<std::int32_t>& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      model_.weights.embedding.read(tokens[i], 1, scratch_.x.row(static_cast<Eigen::Index>(i)).data());
    if (model_.config.architecture == Architecture::gemma3)
      scratch_.x.topRows(static_cast<Eigen::Index>(tokens.size())) *= std::sqrt(static_cast<float>(model_.config.dim));
  }

  /// y = attention of layer i over its cache, which rotates q and k, appends, and evicts where it should.
  void attention(const LayerWeights& w, int i, int n) {
    const Config& c = model_.config;
    auto y = scratch_.y.topRows(n);
    multiply(y, {{w.q, scratch_.q.topRows(n)}, {w.k, scratch_.k.topRows(n)}, {w.v, scratch_.v.topRows(n)}}, run_);
    if (w.q_norm.size() != 0) norm_heads(scratch_.q, w.q_norm, n * c.query_heads);
    if (w.k_norm.size() != 0) norm_heads(scratch_.k, w.k_norm, n * c.kv_heads);
    const buzz::View<float> q(scratch_.q.data(), n, c.query_heads, c.head_dim);
    const buzz::View<float> k(scratch_.k.data(), n, c.kv_heads, c.head_dim);
    const buzz::View<float> v(scratch_.v.data(), n, c.kv_heads, c.head_dim);
    cache_->attend(i, q, k, v, {scratch_.mixed.data(), n, c.query_heads, c.head_dim}, run_);
    multiply(scratch_.mixed.topRows(n), {{w.o, y}}, run_);
  }

  /// y = down(activation(gate(y)) * up(y)).
  void feed_forward(const LayerWeights& w, int n) {
    auto y = scratch_.y.topRows(n), gate = scratch_.gate.topRows(n), up = scratch_.up.topRows(n);
    multiply(y, {{w.gate, gate}, {w.up, up}}, run_);
    if (model_.config.architecture == Architecture::llama) {
      gate.array() *= up.array() / (1.0f + (-gate.array()).exp());  // silu(gate) * up
    } else {                                                        // gelu(gate) * up, by GELU's tanh
      constexpr float root = 0.7978845608f;                         // sqrt(2 / pi)
      gate.array() *= 0.5f * up.array() * (1.0f + (root * (gate.array() + 0.044715f * gate.array().cube())).tanh());
    }
    multiply(gate, {{w.down, y}}, run_);
  }

  void norm_heads(Matrix& heads, const Vector& weight, int count) const {
    Eigen::Map<Matrix> rows(heads.data(), count, weight.size());
    rms_norm(rows, weight, rows);
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
  buzz::Executor run_;
  Scratch scratch_;
};

}  // namespace tiny_llama
