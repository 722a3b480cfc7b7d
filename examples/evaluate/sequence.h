// One sequence read by the model, and what it cost in rows and bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tiny_llama/llama.h"
#include "tiny_llama/reader.h"

namespace evaluate {

using Tokens = std::vector<std::int32_t>;
using tiny_llama::Cache;
using tiny_llama::Config;
using tiny_llama::Llama;
using tiny_llama::Model;

class Sequence {
 public:
  /// The model must outlive it.
  Sequence(const Model& model, std::unique_ptr<Cache> cache)
      : model_(&model), llama_(model, std::move(cache)), peaks_(static_cast<std::size_t>(model.config.layers)) {}

  /// The same sequence once more; the two live apart.
  Sequence fork() const { return Sequence(*this, 0); }

  /// Reads the tokens in chunks as large as the cache takes, and adds each one's negative log-likelihood to `nll`: of
  /// all but a sequence's first, which nothing foretells.
  void read(const Tokens& tokens, std::vector<double>* nll = nullptr) {
    const auto most = static_cast<std::size_t>(llama_.cache().max_chunk());
    for (std::size_t at = 0; at < tokens.size(); at += most) {
      const std::size_t n = (std::min)(most, tokens.size() - at);
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(at);
      const Tokens chunk(begin, begin + static_cast<std::ptrdiff_t>(n));
      // Evictions come at the end of a call: before it, all its tokens have rows.
      for (std::size_t i = 0; i < peaks_.size(); ++i)
        peaks_[i] = (std::max)(peaks_[i], llama_.cache().rows(static_cast<int>(i)) + static_cast<int>(n));
      const auto logits = llama_.forward(chunk, nll != nullptr ? tiny_llama::Logits::all : tiny_llama::Logits::last);
      if (nll != nullptr) {
        if (logits_.size() != 0) nll->push_back(tiny_llama::negative_log_likelihood(logits_, chunk[0]));
        for (std::size_t i = 1; i < n; ++i)
          nll->push_back(tiny_llama::negative_log_likelihood(logits.row(static_cast<Eigen::Index>(i) - 1), chunk[i]));
      }
      logits_ = logits.row(logits.rows() - 1);
    }
  }

  std::int32_t likeliest() const {
    Eigen::Index best = 0;
    logits_.maxCoeff(&best);  // the lowest of equals
    return static_cast<std::int32_t>(best);
  }

  /// The likeliest tokens' text, at most `most` tokens, up to a byte of `stops` or the end of the text.
  std::string text(int most, const char* stops) {
    std::string text;
    for (int i = 0; i < most; ++i) {
      const std::int32_t next = likeliest();
      const std::string piece = model_->tokenizer.piece(next);
      const std::size_t stop = piece.find_first_of(stops);
      text += piece.substr(0, stop);
      if (stop != std::string::npos || next == model_->tokenizer.vocabulary().eos) break;
      if (i + 1 < most) read({next});
    }
    return text;
  }

  const tiny_llama::Vector& logits() const { return logits_; }  // [vocab], after the last token
  const Cache& cache() const { return llama_.cache(); }

  /// Mean over the layers of the rows now, and of the most rows that there have been.
  double rows() const {
    double sum = 0;
    for (int i = 0; i < model_->config.layers; ++i) sum += llama_.cache().rows(i);
    return sum / model_->config.layers;
  }
  double peak_rows() const {
    double sum = 0;
    for (int p : peaks_) sum += p;
    return sum / static_cast<double>(peaks_.size());
  }
  /// K and V of the most rows, all layers.
  double peak_bytes() const {
    const Config& c = model_->config;
    return peak_rows() * c.layers * 2 * c.kv_heads * c.head_dim * static_cast<double>(sizeof(float));
  }
  /// All that the caches have allocated: K and V, scores, positions, scratch.
  double allocated_bytes() const {
    double sum = 0;
    for (int i = 0; i < model_->config.layers; ++i) sum += static_cast<double>(llama_.cache().bytes(i));
    return sum;
  }

 private:
  Sequence(const Sequence& other, int)
      : model_(other.model_), llama_(other.llama_.fork()), logits_(other.logits_), peaks_(other.peaks_) {}

  const Model* model_;
  Llama llama_;
  tiny_llama::Vector logits_;
  std::vector<int> peaks_;  // [layers]
};

}  // namespace evaluate
