#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "buzz/adapters/llama_tokens.h"
#include "buzz/finite.h"
#include "buzz/sizes.h"
#include "buzz/view.h"

namespace buzz {

/// The attention that each cell received in one call of llama_decode(), from each sequence's queries apart, summed over
/// layers and query heads. Columns of llama.cpp's probabilities are cells of a stream, not positions, and those beyond
/// the used cells are padding. Only without flash attention are there any to read.
class LlamaProbabilities {
 public:
  LlamaProbabilities() = default;
  /// cells: of a stream; max_tokens: the most of a sequence in one call, of which the newest `apart` queries are summed
  /// apart. The only allocation: sequences * slices * cells floats, and a scratch.
  LlamaProbabilities(int sequences, int cells, int max_tokens, int apart)
      : width_(cells),
        apart_((std::min)(apart, max_tokens)),
        most_((std::min)(max_tokens, apart_ + 1)),
        sums_(count_of<float>("sequences * queries apart * n_ctx", {sequences, most_, cells})),
        scratch_(static_cast<std::size_t>((std::max)(cells, 1 << 16))) {}

  /// A call comes; forgets the last one. O(sequences * slices * cells).
  void clear() {
    queries_ = 0;
    whole_ = true;
    std::fill(sums_.begin(), sums_.end(), 0.f);
  }
  /// A layer's probabilities, [streams, query_heads, queries, columns], of the newest tokens shown. What is not finite
  /// or below 0 adds nothing.
  template <class Tensor>
  void add(const Tensor& node, const LlamaTokens& tokens) {
    whole_ = whole_ && take(node, tokens);
  }
  /// Has it seen every token of the call in as many layers?
  bool whole(const LlamaTokens& tokens) const { return whole_ && queries_ > 0 && queries_ % tokens.size() == 0; }

  /// How many slices a call of `tokens` queries has: one for all but the newest `apart`, and one for each of those.
  int slices(int tokens) const { return tokens <= apart_ ? tokens : apart_ + 1; }
  /// What each cell received in a slice of a sequence's queries, [cells]; oldest queries first.
  float* sums(int sequence, int slice) {
    return sums_.data() + (static_cast<std::ptrdiff_t>(sequence) * most_ + slice) * width_;
  }
  int width() const { return width_; }                                                    ///< cells of a row of sums()
  std::size_t bytes() const { return (sums_.size() + scratch_.size()) * sizeof(float); }  ///< allocated

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  template <class Tensor>
  bool take(const Tensor& node, const LlamaTokens& tokens) {
    const std::int64_t columns = node.ne[0], queries = node.ne[1], heads = node.ne[2], streams = node.ne[3];
    const std::size_t pitch = index(columns) * sizeof(float);
    if (std::strcmp(ggml_type_name(node.type), "f32") != 0 || node.nb[1] != pitch) return false;
    const Span<const LlamaToken> shown = tokens.shown();
    if (columns < 1 || columns > width_ || queries * streams > shown.size) return false;
    const LlamaToken* const newest = shown.end() - queries * streams;
    const std::int64_t block = static_cast<std::int64_t>(scratch_.size()) / columns;  // queries that fit the scratch
    for (std::int64_t plane = 0; plane < heads * streams; ++plane)
      for (std::int64_t begin = 0; begin < queries; begin += block) {
        const std::int64_t count = (std::min)(block, queries - begin), stream = plane / heads;
        ggml_backend_tensor_get(&node, scratch_.data(),
                                index(stream) * node.nb[3] + index(plane % heads) * node.nb[2] + index(begin) * pitch,
                                index(count) * pitch);
        for (std::int64_t q = 0; q < count; ++q) {
          const LlamaToken& query = newest[stream * queries + begin + q];
          add_attention(scratch_.data() + q * columns, static_cast<int>(columns),
                        sums(query.sequence, slice_of(query.place, tokens.count(query.sequence))));
        }
      }
    queries_ += queries * streams;
    return true;
  }

  int slice_of(int place, int tokens) const {
    const int together = tokens - apart_;  // tokens of the first slice, where there are such
    return together <= 0 ? place : (std::max)(0, place - together + 1);
  }

  int width_ = 0, apart_ = 0, most_ = 0;
  std::int64_t queries_ = 0;  // over all layers
  bool whole_ = true;
  std::vector<float> sums_;     // [sequences, slices(max_tokens), cells]
  std::vector<float> scratch_;  // [queries, columns], of one head
};

}  // namespace buzz
