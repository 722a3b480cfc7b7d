// Reading tokens, going on with the likeliest ones, and what both cost.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tiny_llama/llama.h"

namespace tiny_llama {

/// Negative log-likelihood of a token, in nats. logits: [vocab].
inline double negative_log_likelihood(const Eigen::Ref<const Vector>& logits, std::int32_t token) {
  const float highest = logits.maxCoeff();
  const double sum = (logits.array() - highest).exp().cast<double>().sum();
  return std::log(sum) + static_cast<double>(highest) - static_cast<double>(logits[token]);
}

/// What reading has cost so far; the difference of two is that of the stretch between.
struct Account {
  int tokens = 0;      // read
  int scored = 0;      // of these, the ones that had logits before them: all but a sequence's first
  double nll = 0;      // summed over the scored ones
  double seconds = 0;  // in forward passes

  double mean_nll() const { return scored == 0 ? 0 : nll / scored; }
  double rate() const { return tokens == 0 ? 0 : tokens / seconds; }  // tokens per second
};

inline Account operator-(const Account& a, const Account& b) {
  return {a.tokens - b.tokens, a.scored - b.scored, a.nll - b.nll, a.seconds - b.seconds};
}

/// Feeds one sequence to a model, chunk by chunk, and keeps the account.
class Reader {
 public:
  /// scored: the account has the likelihood of each token; else logits are made after a chunk's last token alone, which
  /// is faster.
  explicit Reader(Llama& llama, bool scored = true) : llama_(llama), scored_(scored) {}

  /// Reads all the tokens, in chunks as large as the cache takes.
  void read(const std::vector<std::int32_t>& tokens) {
    const auto most = static_cast<std::size_t>(llama_.cache().max_chunk());
    for (std::size_t at = 0; at < tokens.size(); at += most) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(at);
      read_chunk({begin, begin + static_cast<std::ptrdiff_t>(std::min(most, tokens.size() - at))});
    }
  }

  std::int32_t likeliest() const {
    Eigen::Index best = 0;
    logits_.maxCoeff(&best);  // the lowest of equals
    return static_cast<std::int32_t>(best);
  }

  const Vector& logits() const { return logits_; }  // [vocab], after the last token; empty before the first
  const Account& account() const { return account_; }

 private:
  void read_chunk(const std::vector<std::int32_t>& chunk) {
    const auto began = std::chrono::steady_clock::now();
    const Eigen::Map<const Matrix> logits = llama_.forward(chunk, scored_ ? static_cast<int>(chunk.size()) : 1);
    account_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (scored_ && logits_.size() != 0) score(logits_, chunk[0]);
    for (std::size_t i = 1; scored_ && i < chunk.size(); ++i)
      score(logits.row(static_cast<Eigen::Index>(i) - 1), chunk[i]);
    logits_ = logits.row(logits.rows() - 1);
    account_.tokens += static_cast<int>(chunk.size());
  }

  void score(const Eigen::Ref<const Vector>& logits, std::int32_t token) {
    account_.nll += negative_log_likelihood(logits, token);
    ++account_.scored;
  }

  Llama& llama_;
  bool scored_;
  Vector logits_;
  Account account_;
};

}  // namespace tiny_llama
