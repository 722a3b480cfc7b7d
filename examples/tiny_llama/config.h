// The shape of a model, and what its layers do, from a file's metadata.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/rope.h"
#include "tiny_llama/gguf.h"
#include "tiny_llama/metadata.h"

namespace tiny_llama {

enum class Architecture { llama, gemma3 };

struct Config {
  std::string name;  // as the file has it, or the architecture's
  Architecture architecture;
  int dim;  // width of the residual stream
  int layers;
  int query_heads, kv_heads, head_dim;
  int ffn;      // width between gate / up and down
  int vocab;    // 0 until the tokenizer is read, where the metadata do not say
  int context;  // positions that the model was trained on
  float norm_eps;
  float rope_base;
  int rope_dims;  // leading elements of a head that are rotated
  buzz::Pairs rope_pairs;

  // Gemma 3: five of six layers slide.
  int window;               // tokens that a sliding layer's query sees, its own included; 0: no layer slides
  int global_every;         // of so many layers, the last is global
  float sliding_rope_base;  // of the sliding layers

  bool slides(int layer) const { return window != 0 && (layer + 1) % global_every != 0; }
};

/// Reads a Config from the keys of its architecture.
class ConfigReader {
 public:
  ConfigReader(const Gguf& file, Architecture architecture, const std::string& name)
      : name_(name), m_(file, name + ".") {
    c_.architecture = architecture;
  }

  /// Errors: metadata that is missing, out of range, of another model, or not known.
  Config read() {
    c_.dim = m_.integer("embedding_length", 1, 1 << 16);
    c_.layers = m_.integer("block_count", 1, 1 << 10);
    c_.ffn = m_.integer("feed_forward_length", 1, 1 << 20);
    c_.vocab = m_.integer("vocab_size", 1, 1 << 24, 0);
    c_.context = m_.integer("context_length", 1, 1 << 24);
    c_.norm_eps = m_.number("attention.layer_norm_rms_epsilon");
    if (!buzz::is_finite(c_.norm_eps) || !(c_.norm_eps > 0) || !(c_.norm_eps < 1))
      fail<FileError>(key("attention.layer_norm_rms_epsilon"), std::to_string(c_.norm_eps), "> 0 and < 1");
    read_heads();
    read_rope();
    if (c_.architecture == Architecture::gemma3) read_window();
    refuse_variants();
    return c_;
  }

 private:
  std::string key(const char* name) const { return name_ + "." + name; }

  void read_heads() {
    c_.query_heads = m_.integer("attention.head_count", 1, 1 << 10);
    c_.kv_heads = m_.integer("attention.head_count_kv", 1, c_.query_heads, c_.query_heads);
    if (c_.query_heads % c_.kv_heads != 0)
      fail<FileError>(key("attention.head_count"), c_.query_heads,
                      "a multiple of " + key("attention.head_count_kv") + " = " + std::to_string(c_.kv_heads));
    std::string why = ", " + key("attention.key_length");
    if (c_.architecture == Architecture::gemma3 && m_.has("attention.key_length")) {
      c_.head_dim = m_.integer("attention.key_length", 1, 1 << 16);
    } else {
      if (c_.dim % c_.query_heads != 0)
        fail<FileError>(key("embedding_length"), c_.dim,
                        "a multiple of " + key("attention.head_count") + " = " + std::to_string(c_.query_heads));
      c_.head_dim = c_.dim / c_.query_heads;
      why = ", embedding_length / head_count";
    }
    for (const char* length : {"attention.key_length", "attention.value_length"}) {
      const int given = m_.integer(length, 1, 1 << 16, c_.head_dim);
      if (given != c_.head_dim) fail<FileError>(key(length), given, std::to_string(c_.head_dim) + why);
    }
  }

  void read_rope() {
    c_.rope_pairs = c_.architecture == Architecture::llama ? buzz::Pairs::interleaved : buzz::Pairs::halves;
    c_.rope_dims = m_.integer("rope.dimension_count", 2, c_.head_dim, c_.head_dim);
    if (c_.rope_dims % 2 != 0) fail<FileError>(key("rope.dimension_count"), c_.rope_dims, "an even number");
    c_.rope_base = base("rope.freq_base", 10000.0f);
  }
  float base(const char* name, float fallback) {
    const float given = m_.number(name, fallback);
    if (!buzz::is_finite(given) || !(given > 1)) fail<FileError>(key(name), std::to_string(given), "finite and > 1");
    return given;
  }

  void read_window() {
    c_.window = m_.integer("attention.sliding_window", 0, 1 << 24, 0);
    c_.global_every = m_.integer("attention.sliding_window_pattern", 1, 1 << 10, 6);
    c_.sliding_rope_base = base("rope.freq_base_swa", 10000.0f);
    if (c_.layers == 62)
      fail<FileError>(key("block_count"), c_.layers, "another number: the model of 27B scales its queries otherwise");
  }

  /// What would change the forward pass and is not in it is refused, unless it says that there is nothing to change.
  void refuse_variants() {
    m_.expect("rope.scaling.type", "none");
    m_.expect("tensor_data_layout", "Meta AI original pth");  // pairs that are rotated lie side by side
    for (const char* factor : {"rope.scale_linear", "rope.scaling.factor", "rope.scaling.attn_factor",
                               "embedding_scale", "residual_scale", "logit_scale"}) {
      m_.expect(factor, 1);
    }
    m_.expect("attention.scale", static_cast<double>(1 / std::sqrt(static_cast<float>(c_.head_dim))));
    m_.expect("attention.causal", 1);
    if (c_.architecture == Architecture::llama) m_.expect("attention.sliding_window", 0);
    for (const char* off : {"rope.scaling.yarn_log_multiplier", "attention.max_alibi_bias", "attention.clamp_kqv",
                            "attn_logit_softcapping", "final_logit_softcapping", "expert_count", "expert_used_count",
                            "use_parallel_residual"}) {
      m_.expect(off, 0);
    }
    m_.describe({"rope.scaling.original_context_length", "rope.scaling.finetuned"});  // of what is no longer scaled
    m_.refuse_others();
  }

  std::string name_;
  Metadata m_;
  Config c_{};
};

/// Errors: metadata that is missing, out of range, of another model, or not known.
inline Config read_config(const Gguf& file) {
  Metadata general(file, "general.");  // describes, but for these
  const std::string name(general.text("architecture"));
  if (name != "llama" && name != "gemma3")
    fail<FileError>("general.architecture", printable(name), "'llama' or 'gemma3'");
  general.expect("type", "model");
  general.expect("quantization_version", 2);  // of the blocks: older ones have other scales
  for (const auto& [key, value] : file.values()) {
    const auto begins = [&, &key = key](const std::string& space) { return Metadata::begins(key, space); };
    if (!begins("general.") && !begins(name + ".") && !begins("tokenizer.") && !begins("quantize."))
      Metadata::refuse(key, value);  // a part of a model, an adapter to one, another architecture
  }
  Config config = ConfigReader(file, name == "llama" ? Architecture::llama : Architecture::gemma3, name).read();
  config.name = general.has("name") ? std::string(general.text("name")) : name;
  return config;
}

}  // namespace tiny_llama
