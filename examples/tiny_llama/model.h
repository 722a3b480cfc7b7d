// A Llama model in memory: its shape, its weights as float, its tokenizer.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "tiny_llama/gguf.h"
#include "tiny_llama/metadata.h"
#include "tiny_llama/tokenizer.h"

namespace tiny_llama {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::Matrix<float, 1, Eigen::Dynamic>;

struct Config {
  int dim;  // width of the residual stream
  int layers;
  int query_heads, kv_heads, head_dim;  // query_heads * head_dim == dim
  int ffn;                              // width between gate / up and down
  int vocab;                            // 0 until the tokenizer is read, where the metadata do not say
  int context;                          // positions that the model was trained on
  float norm_eps;
  float rope_base;
  int rope_dims;  // leading elements of a head that are rotated
};

struct LayerWeights {
  Vector attention_norm;  // [dim]
  Matrix q;               // [query_heads * head_dim, dim]
  Matrix k, v;            // [kv_heads * head_dim, dim]
  Matrix o;               // [dim, query_heads * head_dim]
  Vector ffn_norm;        // [dim]
  Matrix gate, up;        // [ffn, dim]
  Matrix down;            // [dim, ffn]
};

struct Weights {
  Matrix embedding;                  // [vocab, dim]
  std::vector<LayerWeights> layers;  // [layers]
  Vector norm;                       // [dim]
  Matrix output;                     // [vocab, dim]; empty where it is tied to the embedding

  const Matrix& head() const { return output.size() == 0 ? embedding : output; }
};

struct Model {
  Config config;
  Tokenizer tokenizer;
  Weights weights;
  std::int64_t parameters;
};

/// What would change the forward pass and is not in it is refused, unless it says that there is nothing to change.
inline void refuse_variants(Metadata& m, const Config& c) {
  m.expect("rope.scaling.type", "none");
  m.expect("tensor_data_layout", "Meta AI original pth");  // pairs that are rotated lie side by side
  for (const char* factor : {"rope.scale_linear", "rope.scaling.factor", "rope.scaling.attn_factor", "embedding_scale",
                             "residual_scale", "logit_scale"}) {
    m.expect(factor, 1);
  }
  m.expect("attention.scale", static_cast<double>(1 / std::sqrt(static_cast<float>(c.head_dim))));
  m.expect("attention.causal", 1);
  for (const char* off : {"rope.scaling.yarn_log_multiplier", "attention.sliding_window", "attention.max_alibi_bias",
                          "attention.clamp_kqv", "attn_logit_softcapping", "final_logit_softcapping", "expert_count",
                          "expert_used_count", "use_parallel_residual"}) {
    m.expect(off, 0);
  }
  m.describe({"rope.scaling.original_context_length", "rope.scaling.finetuned"});  // of what is no longer scaled
  m.refuse_others();
}

/// Errors: metadata that is missing, out of range, of another model, or not known.
inline Config read_config(const Gguf& file) {
  Metadata general(file, "general.");  // describes, but for these
  const std::string_view architecture = general.text("architecture");
  if (architecture != "llama") fail<FileError>("general.architecture", printable(architecture), "'llama'");
  general.expect("type", "model");
  general.expect("quantization_version", 2);  // of Q8_0's blocks: older ones have other scales
  for (const auto& [key, value] : file.values()) {
    const auto begins = [&, &key = key](const char* space) { return Metadata::begins(key, space); };
    if (!begins("general.") && !begins("llama.") && !begins("tokenizer.") && !begins("quantize."))
      Metadata::refuse(key, value);  // a part of a model, an adapter to one, another architecture
  }

  Metadata m(file, "llama.");
  Config c{};
  c.dim = m.integer("embedding_length", 1, 1 << 16);
  c.layers = m.integer("block_count", 1, 1 << 10);
  c.query_heads = m.integer("attention.head_count", 1, 1 << 10);
  c.kv_heads = m.integer("attention.head_count_kv", 1, c.query_heads, c.query_heads);
  c.ffn = m.integer("feed_forward_length", 1, 1 << 20);
  c.vocab = m.integer("vocab_size", 1, 1 << 24, 0);
  c.context = m.integer("context_length", 1, 1 << 24);
  if (c.dim % c.query_heads != 0) {
    fail<FileError>("llama.embedding_length", c.dim,
                    "a multiple of llama.attention.head_count = " + std::to_string(c.query_heads));
  }
  if (c.query_heads % c.kv_heads != 0) {
    fail<FileError>("llama.attention.head_count", c.query_heads,
                    "a multiple of llama.attention.head_count_kv = " + std::to_string(c.kv_heads));
  }
  c.head_dim = c.dim / c.query_heads;
  c.rope_dims = m.integer("rope.dimension_count", 2, c.head_dim, c.head_dim);
  if (c.rope_dims % 2 != 0) fail<FileError>("llama.rope.dimension_count", c.rope_dims, "an even number");
  c.rope_base = m.number("rope.freq_base", 10000.0f);
  if (!buzz::is_finite(c.rope_base) || !(c.rope_base > 1)) {
    fail<FileError>("llama.rope.freq_base", std::to_string(c.rope_base), "finite and > 1");
  }
  c.norm_eps = m.number("attention.layer_norm_rms_epsilon");
  if (!buzz::is_finite(c.norm_eps) || !(c.norm_eps > 0) || !(c.norm_eps < 1)) {
    fail<FileError>("llama.attention.layer_norm_rms_epsilon", std::to_string(c.norm_eps), "> 0 and < 1");
  }
  for (const char* key : {"attention.key_length", "attention.value_length"}) {
    const int length = m.integer(key, 1, 1 << 16, c.head_dim);
    if (length != c.head_dim) {
      fail<FileError>(std::string("llama.") + key, length,
                      std::to_string(c.head_dim) + ", embedding_length / head_count");
    }
  }
  refuse_variants(m, c);
  return c;
}

/// Takes tensors by name, and checks each one's shape against the metadata before it allocates.
class TensorReader {
 public:
  explicit TensorReader(const Gguf& file) : file_(file) {}

  Matrix matrix(const std::string& name, int rows, int columns) {
    const Tensor& tensor = find(name, {rows, columns});
    Matrix out(rows, columns);
    to_float(tensor, out.data());
    return out;
  }
  Vector vector(const std::string& name, int size) {
    const Tensor& tensor = find(name, {size});
    Vector out(size);
    to_float(tensor, out.data());
    return out;
  }
  std::int64_t parameters() const { return parameters_; }

  /// A tensor that the forward pass would not use makes another model of it.
  void refuse_others() const {
    for (const auto& [name, tensor] : file_.tensors()) {
      if (used_.count(name) == 0)
        fail<FileError>("tensor", printable(name), "the tensors of a llama model without biases");
    }
  }

 private:
  const Tensor& find(const std::string& name, const std::vector<std::int64_t>& shape) {
    const auto place = file_.tensors().find(name);
    if (place == file_.tensors().end()) fail<FileError>(name, "missing", "a tensor of shape " + text(shape));
    if (place->second.shape != shape) {
      fail<FileError>(name + " shape", text(place->second.shape), text(shape) + ", as the metadata say");
    }
    used_.insert(name);
    parameters_ += place->second.size;
    return place->second;
  }
  static std::string text(const std::vector<std::int64_t>& shape) {
    std::string out = "[";
    for (std::int64_t length : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(length);
    return out + "]";
  }

  const Gguf& file_;
  std::set<std::string> used_;
  std::int64_t parameters_ = 0;
};

inline Model read_model(const Gguf& file) {
  Config c = read_config(file);
  Tokenizer tokenizer(read_vocabulary(file));
  if (c.vocab != 0 && c.vocab != tokenizer.size()) {
    fail<FileError>("llama.vocab_size", c.vocab,
                    std::to_string(tokenizer.size()) + ", the elements of tokenizer.ggml.tokens");
  }
  c.vocab = tokenizer.size();
  TensorReader tensors(file);
  Weights w;
  w.embedding = tensors.matrix("token_embd.weight", c.vocab, c.dim);
  for (int i = 0; i < c.layers; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    LayerWeights layer;
    layer.attention_norm = tensors.vector(block + "attn_norm.weight", c.dim);
    layer.q = tensors.matrix(block + "attn_q.weight", c.query_heads * c.head_dim, c.dim);
    layer.k = tensors.matrix(block + "attn_k.weight", c.kv_heads * c.head_dim, c.dim);
    layer.v = tensors.matrix(block + "attn_v.weight", c.kv_heads * c.head_dim, c.dim);
    layer.o = tensors.matrix(block + "attn_output.weight", c.dim, c.query_heads * c.head_dim);
    layer.ffn_norm = tensors.vector(block + "ffn_norm.weight", c.dim);
    layer.gate = tensors.matrix(block + "ffn_gate.weight", c.ffn, c.dim);
    layer.up = tensors.matrix(block + "ffn_up.weight", c.ffn, c.dim);
    layer.down = tensors.matrix(block + "ffn_down.weight", c.dim, c.ffn);
    w.layers.push_back(std::move(layer));
  }
  w.norm = tensors.vector("output_norm.weight", c.dim);
  if (file.tensors().count("output.weight") != 0) w.output = tensors.matrix("output.weight", c.vocab, c.dim);
  tensors.refuse_others();
  return {c, std::move(tokenizer), std::move(w), tensors.parameters()};
}

inline Model read_model(const std::string& path) { return read_model(Gguf::read(path)); }

}  // namespace tiny_llama
