// A model in memory: its shape, its weights, its tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tiny_llama/config.h"
#include "tiny_llama/gguf.h"
#include "tiny_llama/linear.h"
#include "tiny_llama/tokenizer.h"

namespace tiny_llama {

struct LayerWeights {
  Vector attention_norm;       // [dim]
  Linear q;                    // [query_heads * head_dim, dim]
  Linear k, v;                 // [kv_heads * head_dim, dim]
  Vector q_norm, k_norm;       // [head_dim]; empty: none
  Linear o;                    // [dim, query_heads * head_dim]
  Vector post_attention_norm;  // [dim]; empty: none
  Vector ffn_norm;             // [dim]
  Linear gate, up;             // [ffn, dim]
  Linear down;                 // [dim, ffn]
  Vector post_ffn_norm;        // [dim]; empty: none
};

struct Weights {
  Linear embedding;                  // [vocab, dim]
  std::vector<LayerWeights> layers;  // [layers]
  Vector norm;                       // [dim]
  Linear output;                     // [vocab, dim]; empty where it is tied to the embedding

  const Linear& head() const { return output.empty() ? embedding : output; }
};

struct Model {
  Config config;
  Tokenizer tokenizer;
  Weights weights;
  std::int64_t parameters;
};

/// Checks each tensor's shape against the metadata before it allocates, and that none is left over: it would make
/// another model of it. Errors: FileError, what the file has that no such model has, or lacks.
Model read_model(const Gguf& file);
/// Of a file. Errors: Gguf::read's too.
Model read_model(const std::string& path);

}  // namespace tiny_llama
