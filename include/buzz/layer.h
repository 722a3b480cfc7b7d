#pragma once

#include <string>
#include <vector>

#include "buzz/attention_options.h"
#include "buzz/budget.h"
#include "buzz/policies.h"

namespace buzz {

/// One attention layer of a model, as a value: its sizes, what its evictions keep, its positions, how it attends.
struct Layer {
  Shape shape;                      ///< its sizes
  Policy policy;                    ///< what its evictions keep
  Rope rope = {};                   ///< its rotary positions
  AttentionOptions attention = {};  ///< how it attends
  /// Its queries see the newest attention.window positions alone, so that older rows are dropped and missed by nobody:
  /// pins and budgets leave it alone, and a rollback may go back past its last eviction, as far as max_rollback tokens
  /// before it. See sliding_layer().
  bool sliding = false;

  /// Most rows that there can be. Errors: what its policy does not allow.
  int most_rows() const { return policy.most_rows(shape.max_chunk); }
};

/// Errors: what the Shape does not allow; a sliding layer without a window, or whose policy is not `streaming` without
/// a sink over at least as many rows.
inline void check(const Layer& layer) {
  check(layer.shape);
  if (!layer.sliding) return;
  require_range("attention.window", layer.attention.window, 1, layer.policy.protect.window);
  const bool streams = layer.policy.select.as<KeepNone::Options>() != nullptr && layer.policy.score.code() == 0;
  if (!streams || layer.policy.protect.sink != 0) fail("policy", layer.policy.name, "streaming with sink 0 (sliding)");
}

/// Does a cache of this layer store keys as they come (KeyStorage::raw)? Errors: it shall not, but rotated ones would
/// be rounded at every call; what its policy does not allow.
inline bool stores_raw_keys(const Layer& l) {
  l.most_rows();
  const bool drifts = l.rope.positions == Positions::compact && !l.policy.moves_are_few(l.shape.max_chunk);
  if (l.rope.keys == KeyStorage::rotated && drifts)
    fail("rope.keys", "rotated", "raw or automatic: in compact positions this policy moves a row too often");
  return l.rope.keys == KeyStorage::raw || (l.rope.keys == KeyStorage::automatic && drifts);
}

/// A layer whose queries see the newest `window` positions alone, their own included (Gemma, gpt-oss, Mistral). It
/// holds window + max_rollback rows, more until they are an eighth of the window more, and max_chunk while a call
/// lasts: most of the time, an eviction moves eight rows for each token. Errors: what the Shape does not allow; window
/// out of 1 to 2^28.
inline Layer sliding_layer(const Shape& shape, int window, const Rope& rope = {}, AttentionOptions attention = {}) {
  check(shape);
  require_range("window", window, 1, 1 << 28);
  StreamingOptions o;
  o.sink = 0;
  o.window = window + shape.max_rollback;
  o.threshold = (window + 7) / 8;
  attention.window = window;
  return {shape, streaming(o), rope, attention, true};
}

/// Splits `total` rows over the layers of a model: a sliding layer's part is what it holds at most, whatever its
/// weight, and the others share what is left, as above. One weight a layer. Errors: another number of weights; no layer
/// that is not sliding; what is refused above, of what is left.
inline std::vector<long long> split_budget(long long total, const std::vector<Layer>& layers,
                                           const std::vector<double>& weights, long long minimum) {
  require_equal("weights", static_cast<long long>(weights.size()), static_cast<long long>(layers.size()), "layers");
  std::vector<double> others;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].sliding)
      total -= layers[i].most_rows();
    else
      others.push_back(weights[i]);
  }
  const std::vector<long long> shares = split_budget(total, others, minimum);
  std::vector<long long> parts;
  parts.reserve(layers.size());
  auto share = shares.begin();
  for (const Layer& layer : layers) parts.push_back(layer.sliding ? layer.most_rows() : *share++);
  return parts;
}

}  // namespace buzz
