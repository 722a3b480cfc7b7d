// A text that the model reads twice: what its cache holds of it, and where the second reading looks.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "buzz/executor.h"
#include "tiny_llama/llama.h"

namespace calibrate {

using tiny_llama::Config;
using tiny_llama::Matrix;
using tiny_llama::Model;
using Tokens = std::vector<std::int32_t>;

struct ReplayOptions {
  int piece = 512;                                          // tokens read again at once
  std::string request = "\n\nRepeat the previous text:\n";  // before each piece
  int threads = 1;                                          // pieces that attention is cut into
};

/// Of each layer; empty where it slides.
struct Replay {
  std::vector<Matrix> keys, values;  // [tokens, kv_heads * head_dim]; keys before their rotation
  std::vector<Matrix> attention;     // [kv_heads, tokens]: the highest probability that a second reading's query gave
};

/// Lets the model read a text, and then again in pieces, each after the request and as if it were the first: KVzip's
/// replay (arXiv 2505.23416, section 3.2). What it looks at then is what is worth keeping as far as one can know
/// without a question. `text` is of one token at least, the beginning of sequence among them if the model has one,
/// which is not read again. read(n): so many tokens more have been read. As a reference score of the rows of a text
/// that was read whole, by layer, KV head and row: replay(model, text).attention[layer](head, row), nothing in layers
/// that slide. Errors: a text that with the request and a piece is longer than the model's context. O(that of reading
/// it twice).
Replay replay(const Model& model, const Tokens& text, const ReplayOptions& o = {}, buzz::Executor run = {},
              const std::function<void(std::size_t)>& read = {});

}  // namespace calibrate
