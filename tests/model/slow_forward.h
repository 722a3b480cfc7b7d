// The forward pass of Llama and of Gemma 3 said slowly, in double, from the file's tensors and without a cache.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tiny_llama/gguf.h"

namespace model {

class SlowForward {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  explicit SlowForward(const tiny_llama::Gguf& file) : file_(file), name_(file.text("general.architecture")) {}

  /// The logits after each token.
  Rows operator()(const std::vector<std::int32_t>& tokens) const {
    const bool gemma = name_ == "gemma3";
    const Rows embedding = matrix("token_embd.weight");
    Rows x;
    for (std::int32_t t : tokens) x.push_back(embedding[static_cast<std::size_t>(t)]);
    if (gemma)
      for (Row& r : x)
        for (double& e : r) e *= std::sqrt(static_cast<double>(r.size()));
    for (int layer = 0; layer < number("block_count"); ++layer) {
      const std::string b = "blk." + std::to_string(layer) + ".";
      Rows y = attention(layer, normed(x, b + "attn_norm.weight"));
      if (gemma) y = normed(y, b + "post_attention_norm.weight");
      add(x, y);
      const Rows in = normed(x, b + "ffn_norm.weight");
      Rows gate = times(in, b + "ffn_gate.weight"), up = times(in, b + "ffn_up.weight");
      for (std::size_t t = 0; t < gate.size(); ++t)
        for (std::size_t i = 0; i < up[t].size(); ++i) {
          const double g = gate[t][i];
          up[t][i] *= gemma ? g / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g)))
                            : g / (1 + std::exp(-g));
        }
      y = times(up, b + "ffn_down.weight");
      if (gemma) y = normed(y, b + "post_ffw_norm.weight");
      add(x, y);
    }
    return times(normed(x, "output_norm.weight"), "token_embd.weight");
  }

 private:
  int number(const char* key) const { return static_cast<int>(file_.integer(name_ + "." + key, 0, 1 << 20)); }

  Rows matrix(const std::string& name) const {
    const tiny_llama::Tensor& tensor = file_.tensors().at(name);
    std::vector<float> all(static_cast<std::size_t>(tensor.size));
    tiny_llama::to_float(tensor, all.data());
    Rows rows;
    const auto columns = static_cast<std::ptrdiff_t>(tensor.shape.back());
    for (auto at = all.begin(); at != all.end(); at += columns) rows.emplace_back(at, at + columns);
    return rows;
  }
  Rows times(const Rows& x, const std::string& name) const {
    const Rows w = matrix(name);
    Rows y;
    for (const Row& r : x) {
      y.emplace_back();
      for (const Row& row : w) y.back().push_back(dot(r, row, 0, 0, row.size()));
    }
    return y;
  }
  static double dot(const Row& a, const Row& b, std::size_t at_a, std::size_t at_b, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += a[at_a + i] * b[at_b + i];
    return sum;
  }
  static void add(Rows& x, const Rows& y) {
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
  }
  /// Each stretch of a row that is as long as the weights, by itself.
  Rows normed(Rows x, const std::string& name) const {
    const Row w = matrix(name)[0];
    const double eps = static_cast<double>(file_.number(name_ + ".attention.layer_norm_rms_epsilon"));
    for (Row& r : x)
      for (std::size_t at = 0; at < r.size(); at += w.size()) {
        const double mean = dot(r, r, at, at, w.size()) / static_cast<double>(w.size());
        for (std::size_t i = 0; i < w.size(); ++i) r[at + i] *= w[i] / std::sqrt(mean + eps);
      }
    return x;
  }
  void rotate(Row& r, std::size_t dim, std::size_t position, double base) const {
    for (std::size_t head = 0; head < r.size(); head += dim)
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const double angle =
            static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        double &a = r[head + (name_ == "gemma3" ? i : 2 * i)],
               &b = r[head + (name_ == "gemma3" ? dim / 2 + i : 2 * i + 1)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
  }

  Rows attention(int layer, const Rows& in) const {
    const std::string b = "blk." + std::to_string(layer) + ".";
    const bool gemma = name_ == "gemma3";
    Rows q = times(in, b + "attn_q.weight"), k = times(in, b + "attn_k.weight");
    const Rows v = times(in, b + "attn_v.weight");
    if (gemma) {
      q = normed(q, b + "attn_q_norm.weight");
      k = normed(k, b + "attn_k_norm.weight");
    }
    const auto heads = static_cast<std::size_t>(number("attention.head_count")), dim = q[0].size() / heads;
    const std::size_t group = q[0].size() / k[0].size();
    const bool slides = gemma && (layer + 1) % number("attention.sliding_window_pattern") != 0;
    const double base = static_cast<double>(file_.number(name_ + (slides ? ".rope.freq_base_swa" : ".rope.freq_base")));
    for (std::size_t t = 0; t < q.size(); ++t) {
      rotate(q[t], dim, t, base);
      rotate(k[t], dim, t, base);
    }
    Rows out(q.size(), Row(q[0].size()));
    for (std::size_t t = 0; t < q.size(); ++t)
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t at = h / group * dim;
        double sum = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          if (slides && t - s >= static_cast<std::size_t>(number("attention.sliding_window"))) continue;
          const double p = std::exp(dot(q[t], k[s], h * dim, at, dim) / std::sqrt(static_cast<double>(dim)));
          sum += p;
          for (std::size_t i = 0; i < dim; ++i) out[t][h * dim + i] += p * v[s][at + i];
        }
        for (std::size_t i = 0; i < dim; ++i) out[t][h * dim + i] /= sum;
      }
    return times(out, b + "attn_output.weight");
  }

  const tiny_llama::Gguf& file_;
  std::string name_;
};

}  // namespace model
