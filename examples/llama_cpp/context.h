// What a program needs of llama.cpp: a model, a context, a text's tokens, a batch.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "buzz/policy_list.h"

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

/// Tokens at the positions from `first` on, with the logits of all, or of the last alone. Valid until the next call.
class Batch {
 public:
  explicit Batch(int most) : batch_(llama_batch_init(most, 0, 1)) {}
  ~Batch() { llama_batch_free(batch_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const llama_batch& of(const llama_token* ids, int count, int first, bool all_logits = true) {
    batch_.n_tokens = count;
    for (int i = 0; i < count; ++i) {
      batch_.token[i] = ids[i];
      batch_.pos[i] = first + i;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = 0;
      batch_.logits[i] = all_logits || i + 1 == count;
    }
    return batch_;
  }

 private:
  llama_batch batch_;
};

/// Evicts where it should, and reads tokens at the sequence's next positions, with the logits of the last alone.
/// Errors: the eviction's; a call that llama.cpp refuses.
template <class Eviction>
void read(Eviction& eviction, Batch& batch, const llama_token* ids, int count) {
  eviction.evict();
  const llama_batch& next = batch.of(ids, count, eviction.next_position(), /*all_logits*/ false);
  buzz::require_equal("llama_decode", eviction.decode(next), 0, "success");
}

/// A policy of the text that takes `rows` rows in calls of `chunk` tokens, where the text says no other sizes. It
/// evicts an eighth of what it chooses from at once: an eviction reads all rows, so that one for each token would cost
/// more than the token.
inline buzz::Policy policy(const std::string& text, int rows, int chunk) {
  buzz::Policy policy = buzz::policy(text + (text.find(':') == std::string::npos ? ":" : ",") +
                                     "rows=" + std::to_string(rows) + ",max_chunk=" + std::to_string(chunk));
  int heavy = 0, threshold = 0;
  for (const buzz::OptionInfo& o : buzz::options_of(policy)) {
    if (o.name == "heavy") heavy = std::stoi(o.value);
    if (o.name == "threshold") threshold = std::stoi(o.value);
  }
  if (heavy > 1 && heavy == threshold) buzz::set_option(policy, "heavy", std::to_string(heavy - (heavy + 7) / 8));
  return policy;
}

/// Memory that the process has; 0 where nobody says it.
inline std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t whole = 0, resident = 0;
  return statm >> whole >> resident ? resident * 4096 : 0;
}

/// In nats. logits: [vocab].
inline double negative_log_likelihood(const float* logits, int vocab, llama_token token) {
  const float highest = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i] - highest));
  return std::log(sum) + static_cast<double>(highest) - static_cast<double>(logits[token]);
}

}  // namespace llama_cpp
