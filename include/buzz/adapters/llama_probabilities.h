#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "buzz/finite.h"
#include "buzz/sizes.h"
#include "buzz/view.h"

namespace buzz {

/// What llama.cpp's graph shows of one call of llama_decode() through its eval callback: the attention that each cell
/// received, summed over layers and query heads, and each token's cell and position. Cells are not positions, and
/// columns beyond the used cells are padding.
///
/// It reads three kinds of nodes, whose names are llama.cpp's habit and no promise: `kq_soft_max-<layer>`, the SET_ROWS
/// node of `cache_k_l0` and the ROPE node `Qcur-0`; error() says which of them was not as expected. The types of
/// llama.cpp stay templates, and its functions are found by their arguments, so that nothing of it is included.
class LlamaProbabilities {
 public:
  LlamaProbabilities() = default;
  /// cells: of the context; max_tokens: the most of one call, of which the newest `apart` queries are summed apart.
  /// The only allocation: slices * cells floats, and a scratch.
  LlamaProbabilities(int cells, int max_tokens, int apart)
      : width_(cells),
        apart_((std::min)(apart, max_tokens)),
        sums_(count_of<float>("queries apart * n_ctx", {slices(max_tokens), cells})),
        scratch_(static_cast<std::size_t>((std::max)(cells, 1 << 16))),
        cells_(static_cast<std::size_t>(max_tokens)),
        positions_(static_cast<std::size_t>(max_tokens)) {}

  /// A call of so many tokens comes, 0 to max_tokens; forgets the last one. O(slices * cells).
  void begin(int tokens) {
    tokens_ = tokens;
    cells_seen_ = positions_seen_ = 0;
    queries_seen_ = 0;
    error_ = nullptr;
    std::fill(sums_.begin(), sums_.end(), 0.f);
  }

  /// llama.cpp's cb_eval, with the LlamaProbabilities as its user data. It never throws, and it never returns false on
  /// data, which would skip the rest of the graph and still be a success.
  template <class Tensor>
  static bool callback(Tensor* node, bool ask, void* self) {
    const Kind kind = kind_of(*node);
    if (ask) return kind != Kind::other;
    if (kind != Kind::other) static_cast<LlamaProbabilities*>(self)->read(*node, kind);
    return true;
  }

  /// The node that was missing or not as expected, once the call is over; null: all is well.
  const char* error() const {
    if (cells_seen_ != tokens_) return "cache_k_l0 (view)";
    if (positions_seen_ != tokens_) return "Qcur-0";
    if (error_ != nullptr) return error_;
    if (tokens_ > 0 && (queries_seen_ == 0 || queries_seen_ % tokens_ != 0)) return "kq_soft_max";
    return nullptr;
  }

  /// Each token's cell, [tokens].
  Span<const std::int64_t> cells() const { return {cells_.data(), cells_seen_}; }
  /// Each token's position, [tokens].
  Span<const std::int32_t> positions() const { return {positions_.data(), positions_seen_}; }
  /// How many slices a call of `tokens` queries has: one for all but the newest `apart`, and one for each of those.
  int slices(int tokens) const { return tokens <= apart_ ? tokens : apart_ + 1; }
  /// What each cell received in a slice, [cells]; oldest queries first.
  float* sums(int slice) { return sums_.data() + static_cast<std::ptrdiff_t>(slice) * width_; }
  int width() const { return width_; }  ///< cells of a row of sums()
  /// Bytes allocated.
  std::size_t bytes() const {
    return (sums_.size() + scratch_.size()) * sizeof(float) + cells_.size() * sizeof(std::int64_t) +
           positions_.size() * sizeof(std::int32_t);
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  enum class Kind { other, probabilities, cells, positions };

  /// By name and op: the graph that shifts positions comes through the callback too.
  template <class Tensor>
  static Kind kind_of(const Tensor& node) {
    const char* name = node.name;
    const auto is = [&](const char* op) { return std::strcmp(ggml_op_name(node.op), op) == 0; };
    if (std::strncmp(name, "kq_soft_max-", 12) == 0) return is("SOFT_MAX") ? Kind::probabilities : Kind::other;
    if (std::strncmp(name, "cache_k_l0 ", 11) == 0) return is("SET_ROWS") ? Kind::cells : Kind::other;
    if (std::strcmp(name, "Qcur-0") == 0) return is("ROPE") ? Kind::positions : Kind::other;
    return Kind::other;
  }

  template <class Tensor>
  void read(const Tensor& node, Kind kind) {
    if (kind == Kind::cells)
      read_indices(*node.src[1], "i64", "cache_k_l0 (view)", cells_, cells_seen_);
    else if (kind == Kind::positions)
      read_indices(*node.src[1], "i32", "Qcur-0", positions_, positions_seen_);
    else if (!add(node))
      error_ = "kq_soft_max";
  }

  /// One index a token of the micro-batch, in its order; several positions a token (M-RoPE) are too many.
  template <class Tensor, class Index>
  void read_indices(const Tensor& node, const char* type, const char* name, std::vector<Index>& out, int& seen) {
    const std::int64_t count = node.ne[0];
    if (std::strcmp(ggml_type_name(node.type), type) != 0 || count > tokens_ - seen) {
      error_ = name;
      return;
    }
    ggml_backend_tensor_get(&node, out.data() + seen, 0, index(count) * sizeof(Index));
    seen += static_cast<int>(count);
  }

  /// A layer's probabilities, [1, query_heads, queries, columns], of the newest tokens seen. What is not finite or
  /// below 0 adds nothing.
  template <class Tensor>
  bool add(const Tensor& node) {
    const std::int64_t columns = node.ne[0], queries = node.ne[1], heads = node.ne[2];
    const std::size_t pitch = index(columns) * sizeof(float);
    if (std::strcmp(ggml_type_name(node.type), "f32") != 0 || node.nb[1] != pitch || node.ne[3] != 1) return false;
    if (columns < 1 || columns > width_ || queries > cells_seen_ || cells_seen_ != positions_seen_) return false;
    const int first = cells_seen_ - static_cast<int>(queries);
    const std::int64_t block = static_cast<std::int64_t>(scratch_.size()) / columns;  // queries that fit the scratch
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t begin = 0; begin < queries; begin += block) {
        const std::int64_t count = (std::min)(block, queries - begin);
        ggml_backend_tensor_get(&node, scratch_.data(), index(h) * node.nb[2] + index(begin) * pitch,
                                index(count) * pitch);
        for (std::int64_t q = 0; q < count; ++q) {
          const float* row = scratch_.data() + q * columns;
          float* received = sums(part_of(first + static_cast<int>(begin + q)));
          add_attention(row, static_cast<int>(columns), received);
        }
      }
    queries_seen_ += queries;
    return true;
  }

  int part_of(int token) const {
    const int together = tokens_ - apart_;  // tokens of the first slice, where there are such
    return together <= 0 ? token : (std::max)(0, token - together + 1);
  }

  int width_ = 0, apart_ = 0;
  int tokens_ = 0, cells_seen_ = 0, positions_seen_ = 0;
  std::int64_t queries_seen_ = 0;  // over all layers
  const char* error_ = nullptr;
  std::vector<float> sums_;              // [slices(max_tokens), cells]
  std::vector<float> scratch_;           // [queries, columns], of one head
  std::vector<std::int64_t> cells_;      // [max_tokens]
  std::vector<std::int32_t> positions_;  // [max_tokens]
};

}  // namespace buzz
