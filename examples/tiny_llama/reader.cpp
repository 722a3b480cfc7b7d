#include "tiny_llama/reader.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tiny_llama {

double negative_log_likelihood(const Eigen::Ref<const Vector>& logits, std::int32_t token) {
  const float highest = logits.maxCoeff();
  const double sum = (logits.array() - highest).exp().cast<double>().sum();
  return std::log(sum) + static_cast<double>(highest) - static_cast<double>(logits[token]);
}

std::int32_t likeliest(const Eigen::Ref<const Vector>& logits) {
  Eigen::Index best = 0;
  logits.maxCoeff(&best);
  return static_cast<std::int32_t>(best);
}

void Reader::read(const std::vector<std::int32_t>& tokens) {
  const auto most = static_cast<std::size_t>(llama_.cache().max_chunk());
  for (std::size_t at = 0; at < tokens.size(); at += most) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    read_chunk({begin, begin + static_cast<std::ptrdiff_t>(std::min(most, tokens.size() - at))});
  }
}

void Reader::read_chunk(const std::vector<std::int32_t>& chunk) {
  const auto began = std::chrono::steady_clock::now();
  const Eigen::Map<const Matrix> logits = llama_.forward(chunk, scored_ ? static_cast<int>(chunk.size()) : 1);
  account_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (scored_ && logits_.size() != 0) score(logits_, chunk[0]);
  for (std::size_t i = 1; scored_ && i < chunk.size(); ++i)
    score(logits.row(static_cast<Eigen::Index>(i) - 1), chunk[i]);
  logits_ = logits.row(logits.rows() - 1);
  account_.tokens += static_cast<int>(chunk.size());
}

void Reader::score(const Eigen::Ref<const Vector>& logits, std::int32_t token) {
  account_.nll += negative_log_likelihood(logits, token);
  ++account_.scored;
}

}  // namespace tiny_llama
