#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "buzz/error.h"
#include "buzz/rope.h"

namespace buzz {

/// K or V of one layer in llama.cpp's cache, whatever the type of a tensor is called: rows of numbers, a cell each.
struct LlamaTensor {
  const void* tensor = nullptr;  ///< null: there is none
  int row = 0;                   ///< numbers of a cell, all heads
  int cells = 0;                 ///< of a stream
  int streams = 0;               ///< that the cells are divided into: 1 where sequences share them
  std::size_t row_bytes = 0;     ///< of a cell
  std::size_t bytes = 0;         ///< of all cells
  bool transposed = false;       ///< V without flash attention: all cells of a number lie side by side
  int mixed = 0;                 ///< numbers are mixed in blocks of so many, by a Hadamard matrix; 0: they are not
  /// Reads bytes of it.
  void (*read)(const void* tensor, void* to, std::size_t offset, std::size_t bytes) = nullptr;
  /// Makes floats of its numbers; null: they are floats.
  void (*to_floats)(const void* from, float* to, std::int64_t count) = nullptr;

  LlamaTensor() = default;
  /// Of a root tensor [row, cells, streams]. O(1).
  template <class Tensor>
  LlamaTensor(const Tensor& root, bool is_transposed)
      : tensor(&root),
        row(static_cast<int>(root.ne[0])),
        cells(static_cast<int>(root.ne[1])),
        streams(static_cast<int>(root.ne[2])),
        row_bytes(root.nb[1]),
        bytes(root.nb[2] * static_cast<std::size_t>(root.ne[2])),
        transposed(is_transposed),
        read([](const void* t, void* to, std::size_t offset, std::size_t count) {
          ggml_backend_tensor_get(static_cast<const Tensor*>(t), to, offset, count);
        }) {
    if (std::strcmp(ggml_type_name(root.type), "f32") != 0) to_floats = ggml_get_type_traits(root.type)->to_float;
  }
  /// Can its numbers be read as floats?
  bool readable() const { return to_floats != nullptr || row_bytes == static_cast<std::size_t>(row) * sizeof(float); }
};

/// One attention layer as llama.cpp's graph shows it.
struct LlamaLayer {
  int index = 0;                  ///< in the model
  LlamaTensor keys;               ///< its part of the cache
  LlamaTensor values;             ///< the same
  int kv_heads = 0;               ///< of keys and values
  const void* cells = nullptr;    ///< which input says where tokens go: window layers have one of their own
  bool slides = false;            ///< does it keep its last positions alone, by itself?
  Rope rope = {};                 ///< how its keys are rotated; {}: they are not
  const char* unknown = nullptr;  ///< what was done to its keys that cannot be undone; null: nothing

  int key_dim() const { return kv_heads > 0 ? keys.row / kv_heads : 0; }      ///< of a head
  int value_dim() const { return kv_heads > 0 ? values.row / kv_heads : 0; }  ///< of a head
};

/// What llama.cpp's nodes say of a layer. Names and the places of parameters are its habit and no promise, so that all
/// is checked and what is unknown is refused by name. Functions are found by their arguments.
namespace llama_nodes {

/// Is a node that operation?
template <class Tensor>
bool is(const Tensor& node, const char* op) {
  return std::strcmp(ggml_op_name(node.op), op) == 0;
}

/// The layer of a node that stores rows of K ('k') or V ('v') in the cache; -1: it is another one. The graph that
/// shifts positions has nodes of such names too, but none that sets rows.
template <class Tensor>
int stored_layer(const Tensor& node, char which) {
  const char* name = node.name;
  if (std::strncmp(name, "cache_", 6) != 0 || name[6] != which || std::strncmp(name + 7, "_l", 2) != 0) return -1;
  char* end = nullptr;
  const long layer = std::strtol(name + 9, &end, 10);
  return end != name + 9 && *end == ' ' && is(node, "SET_ROWS") ? static_cast<int>(layer) : -1;
}

constexpr int most_steps = 32;                                 ///< from a stored row back to what it was made of
inline constexpr const char* key_mixing = "attn_inp_k_rot";    ///< a matrix that mixes keys before they are quantised
inline constexpr const char* value_mixing = "attn_inp_v_rot";  ///< the same of values

/// The size of the Hadamard matrix that a product is by, where that is called so; 0: it is not; -1: no Hadamard matrix.
template <class Tensor>
int mixing_of(const Tensor& product, const char* name) {
  const Tensor* by = product.src[0];
  if (by == nullptr || std::strstr(by->name, name) == nullptr) return 0;
  const int n = static_cast<int>(by->ne[0]);
  std::vector<float> matrix(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
  ggml_backend_tensor_get(by, matrix.data(), 0, matrix.size() * sizeof(float));
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      int odd = 0;
      for (int both = i & j; both != 0; both &= both - 1) odd ^= 1;
      const float one = matrix[static_cast<std::size_t>(i) * static_cast<std::size_t>(n) + static_cast<std::size_t>(j)];
      if (std::abs(one * std::sqrt(static_cast<float>(n)) - (odd != 0 ? -1.f : 1.f)) > 1e-3f) return -1;
    }
  return n;
}

/// How a ROPE node rotates: ggml_rope_ext()'s parameters, with YaRN's mixing. false: in a way that Rope has no word
/// for.
template <class Tensor>
bool rope_of(const Tensor& node, Rope& rope) {
  const auto real = [&](int i) {
    float value;
    std::memcpy(&value, node.op_params + i, sizeof value);
    return static_cast<double>(value);
  };
  const int dims = node.op_params[1], mode = node.op_params[2];
  if ((mode != 0 && mode != 2) || dims < 2 || dims % 2 != 0) return false;
  const double context = node.op_params[4], base = real(5), scale = real(6), extrapolated = real(7), factor = real(8);
  std::vector<float> factors(static_cast<std::size_t>(dims / 2), 1.f);
  if (node.src[2] != nullptr) ggml_backend_tensor_get(node.src[2], factors.data(), 0, factors.size() * sizeof(float));
  const auto pair = [&](double turns) {
    return dims * std::log(context / (turns * 2 * 3.14159265358979)) / (2 * std::log(base));
  };
  const double low = extrapolated != 0 ? (std::max)(0., std::floor(pair(real(9)))) : 0;
  const double high = extrapolated != 0 ? (std::min)(dims - 1., std::ceil(pair(real(10)))) : 0;
  rope = {};
  rope.dims = dims;
  rope.first = node.op_params[15];
  rope.pairs = mode == 0 ? Pairs::interleaved : Pairs::halves;
  rope.attention_factor = factor * (extrapolated != 0 ? 1 + 0.1 * std::log(1 / scale) : 1);
  for (int i = 0; i < dims / 2; ++i) {
    const double own = frequency(base, i, dims) / static_cast<double>(factors[static_cast<std::size_t>(i)]);
    const double place = (std::min)(1., (std::max)(0., (i - low) / (std::max)(0.001, high - low)));
    const double kept = extrapolated != 0 ? (1 - place) * extrapolated : 0;
    rope.frequencies.push_back(own * scale * (1 - kept) + own * kept);
  }
  return true;
}

/// What a stored row was made of: the node before `at`, through a mixing; null: it was a product by weights.
template <class Tensor>
const Tensor* before(const Tensor& at, const char* mixing) {
  if (!is(at, "MUL_MAT")) return at.src[0];
  return at.src[0] != nullptr && std::strstr(at.src[0]->name, mixing) != nullptr ? at.src[1] : nullptr;
}

/// The ROPE node of the keys that `node` stores; null: they are not rotated.
template <class Tensor>
const Tensor* rotation_of(const Tensor& node) {
  const Tensor* at = node.src[0];
  for (int steps = 0; at != nullptr && steps < most_steps; ++steps, at = before(*at, key_mixing))
    if (is(*at, "ROPE")) return at;
  return nullptr;
}

/// Notes what was done to a layer's keys until `node` stored them.
template <class Tensor>
void follow_keys(const Tensor& node, LlamaLayer& layer) {
  bool plain = true;  // has nothing but what a rotation can be undone behind been done?
  const Tensor* at = node.src[0];
  for (int steps = 0; at != nullptr && steps < most_steps; ++steps, at = before(*at, key_mixing)) {
    if (is(*at, "ROPE")) {
      if (!plain) layer.unknown = "keys that weights scale after their rotation";
      if (!rope_of(*at, layer.rope)) layer.unknown = "keys of a rotation of another kind";
      return;
    }
    if (is(*at, "CONCAT") || is(*at, "SET")) return void(layer.unknown = "keys that are put together from parts");
    if (is(*at, "MUL_MAT")) {
      layer.keys.mixed = mixing_of(*at, key_mixing);
      if (layer.keys.mixed < 0) layer.unknown = "keys that another matrix than Hadamard's mixes";
    } else if (!is(*at, "VIEW") && !is(*at, "RESHAPE") && !is(*at, "CONT") && !is(*at, "PERMUTE")) {
      plain = plain && (is(*at, "RMS_NORM") || is(*at, "L2_NORM") || is(*at, "SCALE"));
    }
  }
}

/// How the values that `node` stores were mixed; 0: they were not.
template <class Tensor>
int follow_values(const Tensor& node) {
  const Tensor* at = node.src[0];
  for (int steps = 0; at != nullptr && steps < most_steps; ++steps, at = at->src[0])
    if (is(*at, "MUL_MAT")) return mixing_of(*at, value_mixing);
  return 0;
}

/// Adds what a node that stores K, or V, says of its layer.
/// @{
template <class Tensor>
void learn_keys(const Tensor& node, LlamaLayer& layer) {
  if (node.view_src == nullptr || node.src[0] == nullptr) return;
  layer.keys = LlamaTensor(*node.view_src, false);
  const Tensor* heads = node.src[0]->src[0];  // [head_dim, kv_heads, tokens], which src[0] is a view of
  if (heads != nullptr && heads->ne[0] * heads->ne[1] == layer.keys.row)
    layer.kv_heads = static_cast<int>(heads->ne[1]);
  layer.cells = node.src[1];
  follow_keys(node, layer);
}
template <class Tensor>
void learn_values(const Tensor& node, LlamaLayer& layer) {
  if (node.view_src == nullptr || node.src[0] == nullptr) return;
  layer.values = LlamaTensor(*node.view_src, node.ne[0] == 1 && node.view_src->ne[0] != 1);
  layer.values.mixed = follow_values(node);
  if (layer.values.mixed < 0) layer.unknown = "values that another matrix than Hadamard's mixes";
}
/// @}

}  // namespace llama_nodes
}  // namespace buzz
