#pragma once

#include <limits>
#include <vector>

#include "buzz/buzz_cache.h"

namespace buzz {

/// The caches of all layers of one sequence, each layer with its own policy. Sequences side by side have a ModelCache
/// each. Layers share the angles of their positions: see RopeTable.
template <class T>
class ModelCache {
 public:
  using Cache = BuzzCache<T>;  ///< of a layer

  /// policies: one for each layer, at least one. max_bytes: what bytes() may come to. Errors: what BuzzCache refuses;
  /// more bytes than that.
  ModelCache(const Shape& shape, const std::vector<Policy>& policies, const Rope& rope = {},
             const AttentionOptions& attention = {},
             std::size_t max_bytes = (std::numeric_limits<std::size_t>::max)()) {
    require_at_least("layers", static_cast<long long>(policies.size()), 1);
    layers_.reserve(policies.size());
    const auto table = Cache::make_table(shape, rope);
    if (policies.size() > 1) table->reserve_calls(shape.max_chunk);
    for (const Policy& p : policies) {
      layers_.push_back(Cache(table, shape, p, attention));
      if (bytes() > max_bytes)
        fail("bytes", std::to_string(bytes()) + " after layer " + std::to_string(layers() - 1),
             "<= max_bytes = " + std::to_string(max_bytes));
    }
  }

  ModelCache(ModelCache&&) = default;             ///< the source may only be destroyed or assigned to
  ModelCache& operator=(ModelCache&&) = default;  ///< the same
  /// A deep copy of all layers: O(bytes()).
  ModelCache fork() const { return ModelCache(*this, 0); }

  int layers() const { return static_cast<int>(layers_.size()); }  ///< at least 1
  /// Errors: a layer out of 0 to layers() - 1.
  Cache& layer(int i) { return layers_[index(i)]; }
  const Cache& layer(int i) const { return layers_[index(i)]; }  ///< to read
  int rows(int i) const { return layer(i).rows(); }              ///< of each head of layer i; errors: as layer()

  /// Bytes allocated, all layers, by part and together. A table of angles counts once, whoever shares it, so that this
  /// may be less than all layer(i).memory().
  Memory memory() const {
    Memory sum;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      sum += layers_[i].memory();
      if (first_with_table(i) < i) sum.scratch -= layers_[i].table_->bytes();
    }
    return sum;
  }
  std::size_t bytes() const { return memory().total(); }  ///< Bytes allocated, all of them.

  /// As newly made, all layers.
  void reset() {
    for (Cache& c : layers_) c.reset();
  }

  /// In all layers, or in none: see BuzzCache. Errors: one layer refuses.
  void pin(int first, int count) {
    for (const Cache& c : layers_) c.evictor().check_pin(first, count);
    for (Cache& c : layers_) c.pin(first, count);
  }
  /// The end of a pin(), in all layers; errors: see Evictor::unpin.
  void unpin(int first, int count) {
    for (Cache& c : layers_) c.unpin(first, count);
  }
  /// Can all layers take the newest `tokens` rows back? Not where some have appended the newest call and others have
  /// not yet.
  bool can_rollback(int tokens) const {
    for (const Cache& c : layers_)
      if (!c.can_rollback(tokens) || (tokens > 0 && c.next_position() != layers_[0].next_position())) return false;
    return true;
  }
  /// Takes them back in all layers, or in none. Errors: can_rollback() says no.
  void rollback(int tokens) {
    for (std::size_t i = 0; i < layers_.size() && tokens > 0; ++i)
      require_equal(field(i, "next_position").c_str(), layers_[i].next_position(), layers_[0].next_position(),
                    "layer[0].next_position");
    for (const Cache& c : layers_) c.evictor().check_rollback(tokens);
    for (Cache& c : layers_) c.rollback(tokens);
  }

  /// All layers in one stream; see BuzzCache. Errors: the stream refuses; a layer whose unobserved() is not 0.
  void save(std::ostream& out) const {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      require_equal(field(i, "unobserved").c_str(), layers_[i].unobserved(), 0,
                    "at save(): observe() or discard() first");
    Writer writer(out);
    writer.same("layers", layers());
    for (const Cache& c : layers_) Cache::archive(c, writer);
    writer.finish();
  }
  /// Reads what save() wrote. Errors: what BuzzCache::load refuses, or another number of layers; every layer is then as
  /// it was.
  void load(std::istream& in) {
    Reader reader(in);
    reader.same("layers", layers());
    ModelCache loaded = fork();
    for (Cache& c : loaded.layers_) {
      c.reset();
      Cache::archive(c, reader);
    }
    reader.finish();
    *this = std::move(loaded);
  }

 private:
  ModelCache(const ModelCache& other, int) {
    layers_.reserve(other.layers_.size());
    for (std::size_t i = 0; i < other.layers_.size(); ++i) {
      const std::size_t first = other.first_with_table(i);
      layers_.push_back(first == i ? other.layers_[i].fork() : Cache(other.layers_[i]));
      layers_[i].table_ = layers_[first].table_;
    }
  }

  /// The first layer that has layer i's table of angles.
  std::size_t first_with_table(std::size_t i) const {
    std::size_t first = 0;
    while (layers_[first].table_ != layers_[i].table_) ++first;
    return first;
  }

  static std::string field(std::size_t layer, const char* name) {
    return "layer[" + std::to_string(layer) + "]." + name;
  }

  std::size_t index(int i) const {
    require_range("layer", i, 0, layers() - 1);
    return static_cast<std::size_t>(i);
  }

  std::vector<Cache> layers_;
};

}  // namespace buzz
