#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buzz/error.h"
#include "buzz/view.h"

namespace buzz {

/// A token of a call of llama_decode(), as the graph shows it.
struct LlamaToken {
  int sequence = 0;           ///< whose it is
  int place = 0;              ///< among that sequence's tokens of the call
  int stream = 0;             ///< of the cache, in which its cell is
  std::int32_t cell = 0;      ///< of that stream
  std::int32_t position = 0;  ///< in its sequence, as llama.cpp has it
};

/// The tokens of one call of llama_decode(): whose each is, as the batch says, and where they went, as the graph says.
/// The micro-batches come in the batch's order where sequences share their cells, else ordered by sequence.
class LlamaTokens {
 public:
  LlamaTokens() = default;
  /// Of calls of at most max_tokens tokens of each sequence. The only allocation.
  LlamaTokens(int sequences, int max_tokens)
      : counts_(static_cast<std::size_t>(sequences)),
        seen_(counts_.size()),
        batch_(counts_.size() * static_cast<std::size_t>(max_tokens)),
        tokens_(batch_.size()),
        most_(max_tokens) {}

  /// A call comes; forgets the last one.
  void clear() {
    std::fill(counts_.begin(), counts_.end(), 0);
    std::fill(seen_.begin(), seen_.end(), 0);
    size_ = shown_ = 0;
  }
  /// Its next token is that sequence's. Errors: more than max_tokens of it, and another sequence than there are.
  void add(int sequence) {
    require_range("seq_id", sequence, 0, static_cast<long long>(counts_.size()) - 1);
    require_range("tokens", counts_[index(sequence)] + 1LL, 1, most_);
    ++counts_[index(sequence)];
    batch_[index(size_++)] = sequence;
  }
  /// A micro-batch, [count]: the cells of its tokens, counted over all streams of so many cells, and their positions.
  /// false: tokens that the batch does not have.
  bool show(int count, const std::int64_t* cells, const std::int32_t* positions, int stream_cells, int streams) {
    if (count > size_ - shown_) return false;
    for (int i = 0; i < count; ++i) {
      const std::int64_t stream = cells[i] / stream_cells;
      const int sequence = streams > 1 ? static_cast<int>(stream) : batch_[index(shown_)];
      if (cells[i] < 0 || stream >= streams || sequence >= sequences()) return false;
      int& seen = seen_[index(sequence)];
      if (seen == counts_[index(sequence)]) return false;
      tokens_[index(shown_++)] = {sequence, seen++, static_cast<int>(stream),
                                  static_cast<std::int32_t>(cells[i] % stream_cells), positions[i]};
    }
    return true;
  }

  /// f(sequence, place) of each token of the batch, in its order.
  template <class F>
  void for_each(F&& f) {
    for (int i = 0; i < size_; ++i) {
      const int s = batch_[index(i)];
      f(s, seen_[index(s)]++);
    }
    std::fill(seen_.begin(), seen_.end(), 0);
  }

  /// f(sequence, tokens) of each that the batch has tokens of.
  template <class F>
  void for_each_sequence(F&& f) const {
    for (int s = 0; s < sequences(); ++s)
      if (count(s) > 0) f(s, count(s));
  }

  int sequences() const { return static_cast<int>(counts_.size()); }         ///< that there may be
  int size() const { return size_; }                                         ///< of the batch
  int count(int sequence) const { return counts_[index(sequence)]; }         ///< of that sequence, in the batch
  Span<const LlamaToken> shown() const { return {tokens_.data(), shown_}; }  ///< so far, as the graph has them
  /// Bytes allocated.
  std::size_t bytes() const {
    return (counts_.size() + seen_.size() + batch_.size()) * sizeof(int) + tokens_.size() * sizeof(LlamaToken);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  std::vector<int> counts_, seen_;  // [sequences], tokens of the batch; of those, the ones shown
  std::vector<int> batch_;          // [size], whose each token is
  std::vector<LlamaToken> tokens_;  // [shown]
  int size_ = 0, shown_ = 0, most_ = 0;
};

}  // namespace buzz
