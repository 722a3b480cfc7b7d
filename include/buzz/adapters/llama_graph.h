#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "buzz/adapters/llama_layer.h"
#include "buzz/adapters/llama_probabilities.h"
#include "buzz/adapters/llama_tokens.h"

namespace buzz {

/// What llama.cpp's graph shows through its eval callback: once, the layers and their parts of the cache; of each call
/// of llama_decode(), where its tokens went, and where that is wanted the attention. All but attention is read when the
/// callback is asked about a node, whose inputs are there by then, so that the graph is computed in one piece.
///
/// The names of nodes (`cache_k_l0`, `kq_soft_max-0`) are llama.cpp's habit and no promise: error() says which was not
/// as expected. The types of llama.cpp stay templates, and its functions are found by their arguments.
class LlamaGraph {
 public:
  /// Learns the layers while a context, which has this for callback, decodes one token; that is removed. One that keeps
  /// fewer cells than the most is a window layer, which bounds itself. Errors: llama_decode() fails; where layers are
  /// needed: none that it knows, window layers that cannot be told from the others.
  template <class Context>
  void look(Context* context, bool needed) {
    layers_.clear();
    learns_ = true;
    std::int32_t token = 0;
    const int result = llama_decode(context, {1, &token, nullptr, nullptr, nullptr, nullptr, nullptr});
    learns_ = false;
    llama_memory_clear(llama_get_memory(context), false);
    if (result != 0) fail("llama_decode", result, "0");
    int cells = 0;
    for (const LlamaLayer& l : layers_) cells = (std::max)(cells, l.keys.cells);
    for (LlamaLayer& l : layers_) l.slides = l.keys.cells < cells;
    first_ = 0;
    while (first_ < layers_.size() && layers_[first_].slides) ++first_;
    if (!needed) return;
    if (cells == 0) fail("cache_k_l", "missing", "a node of llama.cpp's graph (attach() before the context is made)");
    if (llama_model_n_swa(llama_get_model(context)) > 0 && !slides())
      fail("n_ctx", llama_n_ctx(context),
           "more cells than window layers have, without swa_full, so that they can be told from the others");
  }
  /// In the model's order; empty: nothing has been learnt.
  const std::vector<LlamaLayer>& layers() const { return layers_; }
  int cells() const { return layers_.empty() ? 0 : layers_[first_].keys.cells; }      ///< of a stream
  int streams() const { return layers_.empty() ? 1 : layers_[first_].keys.streams; }  ///< of the cache
  /// Makes room for calls of at most max_tokens tokens of a sequence. follows: it is wanted where they go; attends: and
  /// attention, of which the newest `apart` queries apart. The only allocation.
  void reserve(int sequences, int max_tokens, bool follows, bool attends, int apart) {
    tokens_ = LlamaTokens(sequences, max_tokens);
    const auto most = static_cast<std::size_t>(sequences) * static_cast<std::size_t>(max_tokens);
    cells_.resize(most);
    positions_.resize(most);
    follows_ = follows;
    attends_ = attends;
    if (attends) attention_ = LlamaProbabilities(sequences, cells(), max_tokens, apart);
  }

  /// A call comes: tokens() is to be filled. O(sequences), with attention O(sequences * slices * cells).
  void begin() {
    tokens_.clear();
    error_ = nullptr;
    if (attends_) attention_.clear();
  }
  /// The node that was missing or not as expected, once the call is over; null: all is well.
  const char* error() const {
    if (error_ != nullptr) return error_;
    if (follows_ && tokens_.shown().size != tokens_.size()) return "cache_k_l";
    if (attends_ && !attention_.whole(tokens_)) return "kq_soft_max";
    return nullptr;
  }
  LlamaTokens& tokens() { return tokens_; }               ///< of this call
  const LlamaTokens& tokens() const { return tokens_; }   ///< to read
  LlamaProbabilities& attention() { return attention_; }  ///< of this call, where it is wanted

  /// llama.cpp's cb_eval, with the LlamaGraph as its user data. It never throws, and it never returns false on data,
  /// which would skip the rest of the graph and still be a success.
  template <class Tensor>
  static bool callback(Tensor* node, bool ask, void* self) {
    LlamaGraph& graph = *static_cast<LlamaGraph*>(self);
    if (ask) return graph.wants(*node);
    graph.attention_.add(*node, graph.tokens_);
    return true;
  }

  /// Bytes of llama.cpp's cache, all layers.
  std::size_t cache_bytes() const {
    std::size_t sum = 0;
    for (const LlamaLayer& l : layers_) sum += l.keys.bytes + l.values.bytes;
    return sum;
  }
  /// Bytes allocated.
  std::size_t bytes() const {
    return tokens_.bytes() + attention_.bytes() + cells_.size() * sizeof(std::int64_t) +
           positions_.size() * sizeof(std::int32_t) + layers_.size() * sizeof(LlamaLayer);
  }

 private:
  /// Reads what can be read now; true: the node has to be seen when it is computed.
  template <class Tensor>
  bool wants(const Tensor& node) {
    const char* name = node.name;
    if (name[0] == 'k')
      return attends_ && !learns_ && std::strncmp(name, "kq_soft_max-", 12) == 0 && is_global(name + 12) &&
             llama_nodes::is(node, "SOFT_MAX");
    if (name[0] != 'c') return false;
    if (learns_) {
      note(node);
      return false;
    }
    if (follows_ && first_ < layers_.size() && llama_nodes::stored_layer(node, 'k') == layers_[first_].index)
      show(node);
    return false;
  }

  bool slides() const {
    return std::any_of(layers_.begin(), layers_.end(), [](const LlamaLayer& l) { return l.slides; });
  }
  bool is_global(const char* number) const {
    const int index = std::atoi(number);
    for (const LlamaLayer& l : layers_)
      if (l.index == index) return !l.slides;
    return false;
  }

  template <class Tensor>
  void note(const Tensor& node) {
    const int key = llama_nodes::stored_layer(node, 'k'), value = llama_nodes::stored_layer(node, 'v');
    if (key >= 0) llama_nodes::learn_keys(node, layer(key));
    if (value >= 0) llama_nodes::learn_values(node, layer(value));
  }
  LlamaLayer& layer(int index) {
    const auto at = std::find_if(layers_.begin(), layers_.end(), [&](const LlamaLayer& l) { return l.index >= index; });
    if (at != layers_.end() && at->index == index) return *at;
    LlamaLayer made;
    made.index = index;
    return *layers_.insert(at, made);
  }

  /// Where a micro-batch's tokens go. Without rotation nobody says their positions: then they are the next ones.
  template <class Tensor>
  void show(const Tensor& node) {
    const Tensor &cells = *node.src[1], *rotation = llama_nodes::rotation_of(node);
    const Tensor* positions = rotation == nullptr ? nullptr : rotation->src[1];
    const std::int64_t count = cells.ne[0];
    if (std::strcmp(ggml_type_name(cells.type), "i64") != 0 || count > static_cast<std::int64_t>(cells_.size()))
      return void(error_ = "cache_k_l");
    ggml_backend_tensor_get(&cells, cells_.data(), 0, static_cast<std::size_t>(count) * sizeof(std::int64_t));
    if (positions == nullptr)
      std::fill_n(positions_.begin(), count, -1);
    else if (positions->ne[0] != count || std::strcmp(ggml_type_name(positions->type), "i32") != 0)
      return void(error_ = "Kcur");
    else
      ggml_backend_tensor_get(positions, positions_.data(), 0, static_cast<std::size_t>(count) * sizeof(std::int32_t));
    if (!tokens_.show(static_cast<int>(count), cells_.data(), positions_.data(), this->cells(), streams()))
      error_ = "cache_k_l";
  }

  bool learns_ = false, follows_ = false, attends_ = false;
  std::size_t first_ = 0;  // of the layers that do not slide
  std::vector<LlamaLayer> layers_;
  LlamaTokens tokens_;
  LlamaProbabilities attention_;
  const char* error_ = nullptr;
  std::vector<std::int64_t> cells_;      // of a micro-batch
  std::vector<std::int32_t> positions_;  // the same
};

/// What a graph had learnt comes back, unless it is said that all is done.
struct RestoreLlamaGraph {
  LlamaGraph& graph;  ///< of which
  LlamaGraph before;  ///< a copy
  bool done = false;  ///< then it stays as it is
  ~RestoreLlamaGraph() {
    if (!done) graph = std::move(before);
  }
};

}  // namespace buzz
