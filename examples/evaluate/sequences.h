// Sequences that read the same tokens with different caches, and what they cost in rows and bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/batch.h"
#include "tiny_llama/llama.h"
#include "tiny_llama/reader.h"

namespace evaluate {

using Tokens = std::vector<std::int32_t>;
using tiny_llama::Llama;
using tiny_llama::Model;

/// What a model says of a token that it has not read yet.
struct Foretold {
  double nll;         // negative log-likelihood
  bool is_likeliest;  // of all tokens
};

class Sequences {
 public:
  /// One a cache, at least one; the model must outlive them.
  Sequences(const Model& model, Batch::Members caches) : Sequences(model, std::make_unique<Batch>(std::move(caches))) {}
  /// Caches that were cut of what one sequence has read: its peak is theirs.
  Sequences(const Sequences& whole, Batch::Members cut) : Sequences(*whole.model_, std::move(cut)) {
    peaks_.assign(peaks_.size(), whole.peaks_[0]);
  }

  int size() const { return batch_->size(); }
  /// The same sequences once more; they live apart.
  Sequences fork() const { return Sequences(*this, 0); }

  /// Each reads the tokens, in chunks as large as the caches take. `foretold`, [size()], gets what each said of those
  /// from number `first` on: of all but a sequence's first token, which nothing foretells.
  void read(const Tokens& tokens, std::vector<std::vector<Foretold>>* foretold = nullptr, std::size_t first = 0) {
    const auto most = static_cast<std::size_t>(batch_->max_chunk() / size());
    if (foretold != nullptr) foretold->resize(static_cast<std::size_t>(size()));
    for (std::size_t at = 0; at < tokens.size(); at += most) {
      const std::size_t end = (std::min)(tokens.size(), at + most);
      if (foretold != nullptr && at >= first && logits_.size() != 0) look(logits_, tokens[at], foretold);
      // The head's product is dear: none for tokens whose successors nobody scores, but the last one of all.
      std::size_t from = foretold == nullptr ? end : (std::max)(at + 1, first) - 1;
      from = (std::min)(from, end == tokens.size() ? end - 1 : end);
      Tokens chunk;
      for (std::size_t i = at; i < end; ++i) chunk.insert(chunk.end(), static_cast<std::size_t>(size()), tokens[i]);
      const auto logits = forward(chunk, end - from);
      for (std::size_t i = from; i + 1 < end && foretold != nullptr; ++i)
        look(logits.middleRows(static_cast<Eigen::Index>(i - from) * size(), size()), tokens[i + 1], foretold);
      if (logits.rows() > 0) logits_ = logits.bottomRows(size());
    }
  }

  /// The likeliest next token of sequence i, the lowest of equals.
  std::int32_t likeliest(int i = 0) const { return tiny_llama::likeliest(logits_.row(i)); }

  /// The likeliest tokens' text of each, at most `most` tokens, up to a byte of `stops` or the end of the text. All
  /// read on for as long as one of them does.
  std::vector<std::string> texts(int most, const char* stops) {
    std::vector<std::string> texts(static_cast<std::size_t>(size()));
    std::vector<bool> ended(texts.size());
    for (int t = 0; t < most; ++t) {
      Tokens next;
      for (std::size_t i = 0; i < texts.size(); ++i) {
        next.push_back(likeliest(static_cast<int>(i)));
        if (ended[i]) continue;
        const std::string piece = model_->tokenizer.piece(next[i]);
        const std::size_t stop = piece.find_first_of(stops);
        texts[i] += piece.substr(0, stop);
        ended[i] = stop != std::string::npos || next[i] == model_->tokenizer.vocabulary().eos;
      }
      if (t + 1 == most || std::find(ended.begin(), ended.end(), false) == ended.end()) break;
      logits_ = forward(next, 1);
    }
    return texts;
  }

  const Cache& cache(int i = 0) const { return batch_->member(i); }

  /// Mean over the layers of the rows now, and of the most rows that there have been.
  double rows(int i = 0) const {
    double sum = 0;
    for (int layer = 0; layer < model_->config.layers; ++layer) sum += cache(i).rows(layer);
    return sum / model_->config.layers;
  }
  double peak_rows(int i = 0) const {
    double sum = 0;
    for (int p : peaks_[static_cast<std::size_t>(i)]) sum += p;
    return sum / model_->config.layers;
  }
  /// K and V of the most rows, all layers.
  double peak_bytes(int i = 0) const {
    const Config& c = model_->config;
    return peak_rows(i) * c.layers * 2 * c.kv_heads * c.head_dim * static_cast<double>(sizeof(float));
  }
  /// All that the caches have allocated: K and V, scores, positions, scratch.
  double allocated_bytes(int i = 0) const {
    double sum = 0;
    for (int layer = 0; layer < model_->config.layers; ++layer) sum += static_cast<double>(cache(i).bytes(layer));
    return sum;
  }

 private:
  using Logits = Eigen::Map<const tiny_llama::Matrix>;

  Sequences(const Model& model, std::unique_ptr<Batch> batch)
      : model_(&model),
        batch_(batch.get()),
        llama_(model, std::move(batch)),
        peaks_(static_cast<std::size_t>(size()), std::vector<int>(static_cast<std::size_t>(model.config.layers))) {}
  Sequences(const Sequences& other, int)
      : model_(other.model_), llama_(other.llama_.fork()), logits_(other.logits_), peaks_(other.peaks_) {
    batch_ = static_cast<const Batch*>(&llama_.cache());
  }

  /// A chunk of all; logits after the last `outputs` tokens of each, those after the same token side by side.
  Logits forward(const Tokens& chunk, std::size_t outputs) {
    // Evictions come at the end of a call: before it, all its tokens have rows.
    const int each = static_cast<int>(chunk.size()) / size();
    for (int i = 0; i < size(); ++i)
      for (int layer = 0; layer < model_->config.layers; ++layer) {
        int& peak = peaks_[static_cast<std::size_t>(i)][static_cast<std::size_t>(layer)];
        peak = (std::max)(peak, cache(i).rows(layer) + each);
      }
    return llama_.forward(chunk, static_cast<int>(outputs) * size());
  }

  static void look(const Eigen::Ref<const tiny_llama::Matrix>& logits, std::int32_t token,
                   std::vector<std::vector<Foretold>>* foretold) {
    for (std::size_t i = 0; i < foretold->size(); ++i) {
      const auto said = logits.row(static_cast<Eigen::Index>(i));
      (*foretold)[i].push_back(
          {tiny_llama::negative_log_likelihood(said, token), tiny_llama::likeliest(said) == token});
    }
  }

  const Model* model_;
  const Batch* batch_;  // llama_'s cache
  Llama llama_;
  tiny_llama::Matrix logits_;            // [size(), vocab], after the last token
  std::vector<std::vector<int>> peaks_;  // [size()][layers]
};

}  // namespace evaluate
