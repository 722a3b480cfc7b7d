#pragma once

#include <vector>

#include "buzz/buzz_cache.h"

namespace buzz {

/// The caches of all layers of one sequence, each layer with its own options.
template <class T, class Policy = Beehive>
class ModelCache {
 public:
  using Cache = BuzzCache<T, Policy>;
  using Options = typename Policy::Options;

  /// options: one for each layer, at least one. Errors: what BuzzCache refuses.
  ModelCache(const Shape& shape, const std::vector<Options>& options, const Rope& rope = {},
             const AttentionOptions& attention = {}) {
    require_at_least("layers", static_cast<long long>(options.size()), 1);
    layers_.reserve(options.size());
    for (const Options& o : options) layers_.emplace_back(shape, o, rope, attention);
  }

  int layers() const { return static_cast<int>(layers_.size()); }
  /// Errors: a layer out of 0 to layers() - 1.
  Cache& layer(int i) { return layers_[index(i)]; }
  const Cache& layer(int i) const { return layers_[index(i)]; }
  int rows(int i) const { return layer(i).rows(); }

  /// Bytes allocated, all layers.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Cache& c : layers_) sum += c.bytes();
    return sum;
  }
  void reset() {
    for (Cache& c : layers_) c.reset();
  }

 private:
  std::size_t index(int i) const {
    require_range("layer", i, 0, layers() - 1);
    return static_cast<std::size_t>(i);
  }

  std::vector<Cache> layers_;
};

}  // namespace buzz
