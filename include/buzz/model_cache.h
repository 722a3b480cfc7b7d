#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "buzz/buzz_cache.h"
#include "buzz/model_evictor.h"

namespace buzz {

/// The caches of all layers of one sequence, each layer of its own description, global or sliding. Sequences side by
/// side have a ModelCache each. Layers share the angles of their positions: see RopeTable. Each policy is told which
/// layer's it is (Policy::for_layer). What a layer refuses is named by it: "layer[2].window".
///
///     for (int i = 0; i < model.layers(); ++i) model.layer(i).attend(q, k, v, out);  // one pass
///     model.evict();  // where a policy says Sharing::model: all layers but sliding ones keep one list of rows
///
/// Who forgets the last line is refused at an append(), CacheFull, as soon as there is no room.
template <class T>
class ModelCache {
 public:
  using Cache = BuzzCache<T>;  ///< of a layer

  /// One cache a layer, at least one. max_bytes: what bytes() may come to. Errors: what BuzzCache refuses; more bytes
  /// than that, before any of them is allocated.
  explicit ModelCache(const std::vector<Layer>& layers,
                      std::size_t max_bytes = (std::numeric_limits<std::size_t>::max)()) {
    const auto tables = tables_of(layers);
    model_ = model_of(layers);
    if (max_bytes < (std::numeric_limits<std::size_t>::max)()) {
      const std::size_t bytes = memory_of(layers).total();
      if (bytes > max_bytes) fail("bytes", std::to_string(bytes), "<= max_bytes = " + std::to_string(max_bytes));
    }
    layers_.reserve(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i)
      of_layer(i, [&] {
        layers_.push_back(Cache(tables[i], at(layers, i)));
        layers_[i].of_model_ = layers[i].policy.sharing == Sharing::model;
      });
  }
  /// Layers that are alike but for their policies.
  ModelCache(const Shape& shape, const std::vector<Policy>& policies, const Rope& rope = {},
             const AttentionOptions& attention = {}, std::size_t max_bytes = (std::numeric_limits<std::size_t>::max)())
      : ModelCache(layers_of(shape, policies, rope, attention), max_bytes) {}

  ModelCache(ModelCache&&) = default;             ///< the source may only be destroyed or assigned to
  ModelCache& operator=(ModelCache&&) = default;  ///< the same
  /// A deep copy of all layers: O(bytes()).
  ModelCache fork() const { return ModelCache(*this, 0); }

  int layers() const { return static_cast<int>(layers_.size()); }  ///< at least 1
  /// Errors: a layer out of 0 to layers() - 1.
  Cache& layer(int i) { return layers_[index(i)]; }
  const Cache& layer(int i) const { return layers_[index(i)]; }  ///< to read
  int rows(int i) const { return layer(i).rows(); }              ///< of each head of layer i; errors: as layer()

  /// Step 4 of all layers, after the last one's attend() or observe(): evicts where it should, layers of Sharing::model
  /// together. Returns whether any did. Errors: one that should has unobserved(), or one of Sharing::model has not
  /// appended and pinned what the others have; all are then as they were. O(the layers' evictions).
  bool evict() { return evict({}); }
  /// Evicts whatever should_evict() says, once a prompt was read whole: exactly `to` rows are left in each layer, or
  /// all where there are no more; sliding layers are left alone. Returns whether any row went. Errors: those, and fewer
  /// rows than a layer's evictor().least_rows().
  bool evict_to(int to) { return evict(std::optional<int>(to)); }

  /// Bytes allocated, all layers, by part and together. A table of angles counts once, whoever shares it, so that this
  /// may be less than all layer(i).memory(); what layers of Sharing::model choose in comes on top.
  Memory memory() const {
    Memory sum;
    sum.policy = model_.bytes();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      sum += layers_[i].memory();
      if (first_with_table(i) < i) sum.scratch -= layers_[i].table_->bytes();
    }
    return sum;
  }
  std::size_t bytes() const { return memory().total(); }  ///< Bytes allocated, all of them.
  /// The memory() of a model's caches that have not been made yet; see BuzzCache::memory_of. Errors: those of the
  /// constructor.
  static Memory memory_of(const std::vector<Layer>& layers) {
    const auto tables = tables_of(layers);
    Memory sum;
    sum.policy = model_of(layers).bytes();
    for (std::size_t i = 0; i < layers.size(); ++i)
      of_layer(i, [&] {
        sum += Cache::memory_without_table(at(layers, i), tables[i]->rotation());
        tables[i]->reserve_places(layer_sizes::places(layers[i]));
      });
    for (std::size_t i = 0; i < tables.size(); ++i)
      if (std::find(tables.begin(), tables.end(), tables[i]) == tables.begin() + static_cast<std::ptrdiff_t>(i))
        sum.scratch += tables[i]->bytes();
    return sum;
  }

  /// As newly made, all layers.
  void reset() {
    for (Cache& c : layers_) c.reset();
  }

  /// In all layers but sliding ones, or in none: see BuzzCache. Errors: one layer refuses.
  void pin(int first, int count) {
    for_each([&](const Cache& c) { c.is_sliding() ? void() : c.evictor().check_pin(first, count); });
    for_each([&](Cache& c) { c.is_sliding() ? void() : c.pin(first, count); });
  }
  /// The end of a pin(), in all of them; errors: see Evictor::unpin.
  void unpin(int first, int count) {
    for_each([&](Cache& c) { c.is_sliding() ? void() : c.unpin(first, count); });
  }
  /// Can all layers take the newest `tokens` rows back? Not past the last eviction of one that is not sliding, and not
  /// where some have appended the newest call and others have not yet.
  bool can_rollback(int tokens) const {
    for (const Cache& c : layers_)
      if (!c.can_rollback(tokens) || (tokens > 0 && c.next_position() != layers_[0].next_position())) return false;
    return true;
  }
  /// Takes them back in all layers, or in none: bit for bit, but that a sliding layer which has evicted since holds
  /// fewer old rows, which no query sees; what it attends then may differ in the last bits. Errors: can_rollback() says
  /// no.
  void rollback(int tokens) {
    for_each([&](const Cache& c) {
      if (tokens > 0)
        require_equal("next_position", c.next_position(), layers_[0].next_position(), "layer[0].next_position");
    });
    for_each([&](const Cache& c) { c.evictor().check_rollback(tokens); });
    for_each([&](Cache& c) { c.rollback(tokens); });
  }

  /// All layers in one stream; see BuzzCache. Errors: the stream refuses; a layer whose unobserved() is not 0.
  void save(std::ostream& out) const {
    for_each([](const Cache& c) {
      require_equal("unobserved", c.unobserved(), 0, "at save(): observe() or discard() first");
    });
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
    loaded.for_each([&](Cache& c) {
      c.reset();
      Cache::archive(c, reader);
    });
    reader.finish();
    loaded.model_.template require_in_step<FileError>(Evictors<const Cache>{loaded.layers_});
    *this = std::move(loaded);
  }

 private:
  ModelCache(const ModelCache& other, int) : model_(other.model_) {
    layers_.reserve(other.layers_.size());
    for (std::size_t i = 0; i < other.layers_.size(); ++i) {
      const std::size_t first = other.first_with_table(i);
      layers_.push_back(first == i ? other.layers_[i].fork() : Cache(other.layers_[i]));
      layers_[i].table_ = layers_[first].table_;
    }
  }

  /// The layers' evictors, as ModelEvictor reads them.
  template <class C>
  struct Evictors {
    std::conditional_t<std::is_const<C>::value, const std::vector<Cache>, std::vector<Cache>>& layers;
    std::size_t size() const { return layers.size(); }
    auto& operator[](std::size_t i) const { return layers[i].evictor_; }
  };
  /// Who chooses for the layers of Sharing::model. Errors: a sliding one, or a global one of another sharing beside
  /// them; those of ModelEvictor.
  static ModelEvictor model_of(const std::vector<Layer>& layers) {
    bool any = false;
    for (const Layer& l : layers) any |= l.policy.sharing == Sharing::model;
    for (std::size_t i = 0; i < layers.size() && any; ++i)
      of_layer(i, [&] {
        if ((layers[i].policy.sharing == Sharing::model) == layers[i].sliding)
          fail("sharing", layers[i].sliding ? "model" : "head or layer",
               layers[i].sliding ? "head (a sliding layer)" : "model, as the model's other layers");
      });
    return ModelEvictor(static_cast<int>(layers.size()), [&](int i) {
      const Layer& l = layers[static_cast<std::size_t>(i)];
      return ModelEvictor::Member{l.policy, l.shape.kv_heads, l.shape.max_chunk};
    });
  }

  bool evict(std::optional<int> to) {
    Evictors<Cache> evictors{layers_};
    const bool model = model_.evicts(evictors, to);
    const auto evicts = [&](const Cache& c) { return !(to && c.is_sliding()) && c.evictor().evicts(to); };
    for_each([&](const Cache& c) { evicts(c) ? c.require_observed("an eviction") : void(); });
    if (model)
      model_.select(
          evictors,
          [&](int i) {
            const Cache& c = layers_[static_cast<std::size_t>(i)];
            return std::make_pair(c.store_.keys(c.rows()), c.store_.values(c.rows()));
          },
          to);
    bool any = model;
    for (Cache& c : layers_) {
      if (c.policy().sharing == Sharing::model) {
        if (model) c.compact(c.evictor_.kept());
      } else if (evicts(c)) {
        any = c.evict(to);
      }
    }
    return any;
  }

  /// The first layer that has layer i's table of angles.
  std::size_t first_with_table(std::size_t i) const {
    std::size_t first = 0;
    while (layers_[first].table_ != layers_[i].table_) ++first;
    return first;
  }

  /// Layer i, whose policy knows which it is.
  static Layer at(const std::vector<Layer>& layers, std::size_t i) {
    Layer layer = layers[i];
    layer.policy = layer.policy.for_layer(static_cast<int>(i));
    return layer;
  }
  /// f(); what it refuses is layer i's.
  template <class F>
  static decltype(auto) of_layer(std::size_t i, F&& f) {
    return refusing_as([&] { return "layer[" + std::to_string(i) + "]"; }, std::forward<F>(f));
  }
  /// f(layer) of each; what it refuses is that layer's.
  /// @{
  template <class F>
  void for_each(F&& f) {
    for (std::size_t i = 0; i < layers_.size(); ++i) of_layer(i, [&] { f(layers_[i]); });
  }
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) of_layer(i, [&] { f(layers_[i]); });
  }
  /// @}

  static std::vector<Layer> layers_of(const Shape& shape, const std::vector<Policy>& policies, const Rope& rope,
                                      const AttentionOptions& attention) {
    std::vector<Layer> layers;
    layers.reserve(policies.size());
    for (const Policy& p : policies) layers.push_back({shape, p, rope, attention});
    return layers;
  }
  /// A table of angles for each layer: the same where they rotate alike. Errors: no layer, a Shape or Rope.
  static std::vector<std::shared_ptr<RopeTable>> tables_of(const std::vector<Layer>& layers) {
    require_at_least("layers", static_cast<long long>(layers.size()), 1);
    std::vector<std::shared_ptr<RopeTable>> tables;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      tables.push_back(of_layer(i, [&] { return Cache::make_table(layers[i]); }));
      std::size_t j = 0;
      while (layers[j].rope != layers[i].rope || layers[j].shape.head_dim != layers[i].shape.head_dim) ++j;
      if (j == i) continue;
      tables[i] = tables[j];
      tables[i]->reserve_calls((std::max)(layers[i].shape.max_chunk, layers[j].shape.max_chunk));
    }
    return tables;
  }

  std::size_t index(int i) const {
    require_range("layer", i, 0, layers() - 1);
    return static_cast<std::size_t>(i);
  }

  std::vector<Cache> layers_;
  ModelEvictor model_;  // of the layers of Sharing::model
};

}  // namespace buzz
