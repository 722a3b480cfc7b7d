#include "tiny_llama/model.h"

#include <set>
#include <utility>

#include "buzz/error.h"

namespace tiny_llama {
namespace {

/// Takes tensors by name, and checks each one's shape against the metadata before it allocates.
class TensorReader {
 public:
  explicit TensorReader(const Gguf& file) : file_(file) {}

  Linear linear(const std::string& name, int rows, int columns) { return Linear(find(name, {rows, columns})); }
  Vector vector(const std::string& name, int size) {
    const Tensor& tensor = find(name, {size});
    Vector out(size);
    to_float(tensor, out.data());
    return out;
  }
  std::int64_t parameters() const { return parameters_; }

  /// A tensor that the forward pass would not use makes another model of it.
  void refuse_others(const char* architecture) const {
    for (const auto& [name, tensor] : file_.tensors()) {
      if (used_.count(name) == 0)
        fail<FileError>("tensor", printable(name),
                        std::string("the tensors of a ") + architecture + " model without biases");
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

LayerWeights read_layer(TensorReader& tensors, const Config& c, const std::string& block) {
  LayerWeights w;
  w.attention_norm = tensors.vector(block + "attn_norm.weight", c.dim);
  w.q = tensors.linear(block + "attn_q.weight", c.query_heads * c.head_dim, c.dim);
  w.k = tensors.linear(block + "attn_k.weight", c.kv_heads * c.head_dim, c.dim);
  w.v = tensors.linear(block + "attn_v.weight", c.kv_heads * c.head_dim, c.dim);
  w.o = tensors.linear(block + "attn_output.weight", c.dim, c.query_heads * c.head_dim);
  w.ffn_norm = tensors.vector(block + "ffn_norm.weight", c.dim);
  w.gate = tensors.linear(block + "ffn_gate.weight", c.ffn, c.dim);
  w.up = tensors.linear(block + "ffn_up.weight", c.ffn, c.dim);
  w.down = tensors.linear(block + "ffn_down.weight", c.dim, c.ffn);
  if (c.architecture == Architecture::gemma3) {
    w.q_norm = tensors.vector(block + "attn_q_norm.weight", c.head_dim);
    w.k_norm = tensors.vector(block + "attn_k_norm.weight", c.head_dim);
    w.post_attention_norm = tensors.vector(block + "post_attention_norm.weight", c.dim);
    w.post_ffn_norm = tensors.vector(block + "post_ffw_norm.weight", c.dim);
  }
  return w;
}

}  // namespace

Model read_model(const Gguf& file) {
  Config c = read_config(file);
  const char* const architecture = c.architecture == Architecture::llama ? "llama" : "gemma3";
  Tokenizer tokenizer(read_vocabulary(file));
  if (c.vocab != 0 && c.vocab != tokenizer.size()) {
    fail<FileError>(std::string(architecture) + ".vocab_size", c.vocab,
                    std::to_string(tokenizer.size()) + ", the elements of tokenizer.ggml.tokens");
  }
  c.vocab = tokenizer.size();
  TensorReader tensors(file);
  Weights w;
  w.embedding = tensors.linear("token_embd.weight", c.vocab, c.dim);
  for (int i = 0; i < c.layers; ++i) w.layers.push_back(read_layer(tensors, c, "blk." + std::to_string(i) + "."));
  w.norm = tensors.vector("output_norm.weight", c.dim);
  if (file.tensors().count("output.weight") != 0) w.output = tensors.linear("output.weight", c.vocab, c.dim);
  tensors.refuse_others(architecture);
  return {c, std::move(tokenizer), std::move(w), tensors.parameters()};
}

Model read_model(const std::string& path) { return read_model(Gguf::read(path)); }

}  // namespace tiny_llama
