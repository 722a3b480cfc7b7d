#include "tiny_llama/llama.h"

#include <cmath>
#include <utility>

#include "buzz/error.h"
#include "buzz/view.h"

namespace tiny_llama {
namespace {

/// y = x / (the root of its rows' mean squares) * weight.
template <class X, class Y>
void rms_norm(const X& x, const Vector& weight, float eps, Y&& y) {
  for (Eigen::Index i = 0; i < x.rows(); ++i) {
    const float mean = x.row(i).squaredNorm() / static_cast<float>(x.cols());
    y.row(i) = x.row(i).cwiseProduct(weight) / std::sqrt(mean + eps);
  }
}

void norm_heads(Matrix& heads, const Vector& weight, float eps, int count) {
  Eigen::Map<Matrix> rows(heads.data(), count, weight.size());
  rms_norm(rows, weight, eps, rows);
}

}  // namespace

Llama::Llama(const Model& model, std::unique_ptr<Cache> cache, buzz::Executor run)
    : model_(model), cache_(std::move(cache)), run_(run), scratch_(model.config, cache_->max_chunk()) {}

Llama::Scratch::Scratch(const Config& c, int n)
    : x(n, c.dim),
      y(n, c.dim),
      q(n, c.query_heads * c.head_dim),
      k(n, c.kv_heads * c.head_dim),
      v(n, c.kv_heads * c.head_dim),
      mixed(n, c.query_heads * c.head_dim),
      gate(n, c.ffn),
      up(n, c.ffn) {}

Eigen::Map<const Matrix> Llama::forward(const std::vector<std::int32_t>& tokens, int outputs) {
  const int n = check(tokens);
  buzz::require_range("outputs", outputs, 0, n);
  cache_->check_room(n);
  const Config& c = model_.config;
  auto x = scratch_.x.topRows(n), y = scratch_.y.topRows(n);
  embed(tokens);
  for (int i = 0; i < c.layers; ++i) {
    const LayerWeights& w = model_.weights.layers[static_cast<std::size_t>(i)];
    rms_norm(x, w.attention_norm, c.norm_eps, y);
    attention(w, i, n);
    if (w.post_attention_norm.size() != 0) rms_norm(y, w.post_attention_norm, c.norm_eps, y);
    x += y;
    rms_norm(x, w.ffn_norm, c.norm_eps, y);
    feed_forward(w, n);
    if (w.post_ffn_norm.size() != 0) rms_norm(y, w.post_ffn_norm, c.norm_eps, y);
    x += y;
  }
  if (outputs == 0) return {nullptr, 0, c.vocab};
  rms_norm(x.bottomRows(outputs), model_.weights.norm, c.norm_eps, y.topRows(outputs));
  if (scratch_.logits.rows() < outputs) scratch_.logits.resize(outputs, c.vocab);
  multiply(y.topRows(outputs), {{model_.weights.head(), scratch_.logits.topRows(outputs)}}, run_);
  return {scratch_.logits.data(), outputs, c.vocab};
}

int Llama::check(const std::vector<std::int32_t>& tokens) const {
  const auto n = static_cast<long long>(tokens.size());
  buzz::require_range("tokens", n, 1, scratch_.x.rows());
  for (std::int32_t id : tokens) buzz::require_range("token id", id, 0, model_.config.vocab - 1);
  return static_cast<int>(n);
}

void Llama::embed(const std::vector<std::int32_t>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    model_.weights.embedding.read(tokens[i], 1, scratch_.x.row(static_cast<Eigen::Index>(i)).data());
  if (model_.config.architecture == Architecture::gemma3)
    scratch_.x.topRows(static_cast<Eigen::Index>(tokens.size())) *= std::sqrt(static_cast<float>(model_.config.dim));
}

void Llama::attention(const LayerWeights& w, int i, int n) {
  const Config& c = model_.config;
  auto y = scratch_.y.topRows(n);
  multiply(y, {{w.q, scratch_.q.topRows(n)}, {w.k, scratch_.k.topRows(n)}, {w.v, scratch_.v.topRows(n)}}, run_);
  if (w.q_norm.size() != 0) norm_heads(scratch_.q, w.q_norm, c.norm_eps, n * c.query_heads);
  if (w.k_norm.size() != 0) norm_heads(scratch_.k, w.k_norm, c.norm_eps, n * c.kv_heads);
  const buzz::View<float> q(scratch_.q.data(), n, c.query_heads, c.head_dim);
  const buzz::View<float> k(scratch_.k.data(), n, c.kv_heads, c.head_dim);
  const buzz::View<float> v(scratch_.v.data(), n, c.kv_heads, c.head_dim);
  cache_->attend(i, q, k, v, {scratch_.mixed.data(), n, c.query_heads, c.head_dim}, run_);
  multiply(scratch_.mixed.topRows(n), {{w.o, y}}, run_);
}

void Llama::feed_forward(const LayerWeights& w, int n) {
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

}  // namespace tiny_llama
