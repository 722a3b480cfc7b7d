// Reading tokens, going on with the likeliest ones, and what both cost.
#pragma once

#include <cstdint>
#include <vector>

#include "tiny_llama/llama.h"

namespace tiny_llama {

/// Negative log-likelihood of a token, in nats. logits: [vocab].
double negative_log_likelihood(const Eigen::Ref<const Vector>& logits, std::int32_t token);
/// The token of the highest logit, the lowest of equals. logits: [vocab].
std::int32_t likeliest(const Eigen::Ref<const Vector>& logits);

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
  void read(const std::vector<std::int32_t>& tokens);

  std::int32_t likeliest() const { return tiny_llama::likeliest(logits_); }
  const Vector& logits() const { return logits_; }  // [vocab], after the last token; empty before the first
  const Account& account() const { return account_; }

 private:
  void read_chunk(const std::vector<std::int32_t>& chunk);
  void score(const Eigen::Ref<const Vector>& logits, std::int32_t token);

  Llama& llama_;
  bool scored_;
  Vector logits_;
  Account account_;
};

}  // namespace tiny_llama
