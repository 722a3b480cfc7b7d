// What a program needs of llama.cpp: a model, a context, a text's tokens, a batch.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "buzz/error.h"

namespace llama_cpp {

struct Free {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};
using Model = std::unique_ptr<llama_model, Free>;
using Context = std::unique_ptr<llama_context, Free>;

/// Errors: a file that llama.cpp does not read.
inline Model load(const std::string& path) {
  Model model(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (!model) buzz::fail<buzz::FileError>("model", "'" + path + "'", "a GGUF file that llama.cpp reads");
  return model;
}

/// threads: 0 for as many as there are cores.
inline llama_context_params params(int cells, int chunk, int threads) {
  llama_context_params p = llama_context_default_params();
  p.n_ctx = static_cast<std::uint32_t>(cells);
  p.n_batch = p.n_ubatch = static_cast<std::uint32_t>(chunk);
  p.n_threads = p.n_threads_batch =
      threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  p.no_perf = true;
  return p;
}

inline Context make(const Model& model, const llama_context_params& p) {
  Context context(llama_init_from_model(model.get(), p));
  if (!context) buzz::fail("context", "null", "one that llama.cpp can make");
  return context;
}

/// At most `most` tokens, with what the model wants before them.
inline std::vector<llama_token> tokens(const Model& model, const std::string& text, int most) {
  const llama_vocab* vocab = llama_model_get_vocab(model.get());
  const auto size = static_cast<std::int32_t>(std::min<std::size_t>(text.size(), 1 << 30));
  std::vector<llama_token> ids(static_cast<std::size_t>(size) + 8);
  const int count =
      llama_tokenize(vocab, text.data(), size, ids.data(), static_cast<std::int32_t>(ids.size()), true, false);
  buzz::require_at_least("tokens", count, 2);
  ids.resize(static_cast<std::size_t>(std::min(count, most)));
  return ids;
}

/// Tokens at the positions from `first` on, with the logits of all. Valid until the next call.
class Batch {
 public:
  explicit Batch(int most) : batch_(llama_batch_init(most, 0, 1)) {}
  ~Batch() { llama_batch_free(batch_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const llama_batch& of(const llama_token* ids, int count, int first) {
    batch_.n_tokens = count;
    for (int i = 0; i < count; ++i) {
      batch_.token[i] = ids[i];
      batch_.pos[i] = first + i;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = 0;
      batch_.logits[i] = 1;
    }
    return batch_;
  }

 private:
  llama_batch batch_;
};

/// In nats. logits: [vocab].
inline double negative_log_likelihood(const float* logits, int vocab, llama_token token) {
  const float highest = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i] - highest));
  return std::log(sum) + static_cast<double>(highest) - static_cast<double>(logits[token]);
}

}  // namespace llama_cpp
