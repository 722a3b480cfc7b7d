#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "buzz/evictor.h"

namespace buzz {

/// One list of rows for all layers of a model: takes the scores of all heads of all Evictors whose policy says
/// Sharing::model, and has each of them keep the same rows. Others, as those of sliding layers, take no part.
///
///     std::vector<buzz::Evictor> evictors = ...;  // a layer's each, whatever else is an array of them
///     buzz::ModelEvictor model(evictors);
///     ...                                         // after the last layer's append() and observe() of a pass:
///     if (model.should_evict(evictors)) {
///       model.select(evictors, [&](int layer) { return std::make_pair(keys(layer), values(layer)); });  // RowsViews
///       for (int i = 0; i < layers; ++i) compact(evictors[i].kept(), ...);  // those that took part
///     }
///
/// Scores may differ by layer, by weights of each; what is protected, the selection, the reduction and max_chunk may
/// not. It holds no evictor; after the constructor nothing allocates.
class ModelEvictor {
 public:
  /// What has to be known of a layer.
  struct Member {
    const Policy& policy;  ///< its evictor's
    int kv_heads;          ///< lists of rows
    int max_chunk;         ///< most tokens of a call
  };
  ModelEvictor() = default;  ///< of no layers
  /// Of evictors[0], evictors[1], ..., of which there are size(). Errors, named by the layer: one that differs.
  template <class Evictors>
  explicit ModelEvictor(const Evictors& evictors)
      : ModelEvictor(static_cast<int>(evictors.size()), [&](int i) {
          const Evictor& e = at(evictors, i);
          return Member{e.policy(), e.kv_heads(), e.max_chunk()};
        }) {}
  /// The same before there are any: of(i) is layer i's Member.
  template <class Of>
  ModelEvictor(int layers, Of&& of) : layers_(layers) {
    int heads = 0;
    for (int i = 0; i < layers; ++i) {
      const Member one = of(i);
      if (one.policy.sharing != Sharing::model) continue;
      if (first_ < 0) first_ = i;
      const Member first = of(first_);
      of_layer(i, [&] {
        require_equal("max_chunk", one.max_chunk, first.max_chunk, "the model's other layers'");
        require_alike(one.policy, first.policy);
        heads = static_cast<int>(product_of("kv_heads of the model", {heads + static_cast<long long>(one.kv_heads)},
                                            (std::numeric_limits<int>::max)()));
      });
    }
    if (first_ < 0) return;
    const Member first = of(first_);
    capacity_ = first.policy.most_rows(first.max_chunk);
    shared_ = SharedImportance(first.policy.reduction, heads, capacity_);
  }

  bool empty() const { return first_ < 0; }              ///< has no layer a policy of Sharing::model?
  std::size_t bytes() const { return shared_.bytes(); }  ///< allocated

  /// Does the budget call for an eviction? Errors, named by the layer: one is not where the others are in the sequence,
  /// or has other pins.
  template <class Evictors>
  bool should_evict(const Evictors& evictors) const {
    return evicts(evictors, {});
  }
  /// Would select(to) drop a row? Errors: the same; fewer rows than Evictor::least_rows().
  template <class Evictors>
  bool evicts(const Evictors& evictors, std::optional<int> to) const {
    if (empty()) return false;
    require_in_step<InvalidArgument>(evictors);
    return of_layer(first_, [&] { return at(evictors, first_).evicts(to); });
  }

  /// One choice for all of them; each has it in its kept(). `to` as of Evictor::select(). rows(i): layer i's keys and
  /// values, a pair of RowsViews as of Evictor::select_quantised(). Errors: theirs, and those above; nothing has
  /// changed then. O(layers) times an Evictor's.
  template <class Evictors, class Rows, class = std::enable_if_t<std::is_invocable<Rows&, int>::value>>
  void select(Evictors& evictors, Rows&& rows, std::optional<int> to = {}) {
    choose(evictors, to, [&](Evictor& e, int i) {
      const auto shown = rows(i);
      e.showing(shown.first, shown.second, [&](const Evictor::Shown& s) { e.ask_all(s, shared_); });
    });
  }
  /// The same of policies that look at neither keys nor values.
  template <class Evictors>
  void select(Evictors& evictors, std::optional<int> to = {}) {
    choose(evictors, to, [&](Evictor& e, int) {
      e.require_blind();
      e.ask_all({}, shared_);
    });
  }

  /// Refuses, as a Family, layers that hold other rows than the first: not all have appended, pinned or taken back the
  /// same. O(layers * kv_heads * rows).
  template <class Family, class Evictors>
  void require_in_step(const Evictors& evictors) const {
    if (empty()) return;
    require_equal("layers", static_cast<long long>(evictors.size()), layers_, "as at the beginning");
    const Evictor& first = at(evictors, first_);
    for_each(evictors, [&](const Evictor& e, int) {
      const auto differs = [](const char* field, const char* what) {
        fail<Family>(field, what, "as of the model's other layers");
      };
      if (e.capacity() != capacity_ || first.policy().sharing != Sharing::model) differs("policy", "another");
      if (e.next_position() != first.next_position()) differs("next_position", "another");
      if (e.regions() != first.regions()) differs("rows", "another number");
      for (int h = 0; h < e.kv_heads(); ++h)
        if (!std::equal(e.positions(h).begin(), e.positions(h).end(), first.positions(0).begin()))
          differs("positions", "others");
      if (!(e.pins() == first.pins())) differs("pins", "others");
    });
  }

 private:
  template <class Evictors>
  static decltype(auto) at(Evictors& evictors, int i) {
    return evictors[static_cast<std::size_t>(i)];
  }
  template <class F>
  static decltype(auto) of_layer(int i, F&& f) {
    return refusing_as([&] { return "layer[" + std::to_string(i) + "]"; }, std::forward<F>(f));
  }
  /// f(evictor, layer) of each that takes part; what it refuses is that layer's.
  template <class Evictors, class F>
  void for_each(Evictors& evictors, F&& f) const {
    for (int i = first_, layers = static_cast<int>(evictors.size()); i >= 0 && i < layers; ++i) {
      auto& e = at(evictors, i);
      if (e.policy().sharing == Sharing::model) of_layer(i, [&] { f(e, i); });
    }
  }

  template <class Evictors, class Ask>
  void choose(Evictors& evictors, std::optional<int> to, Ask&& ask) {
    if (empty()) return;
    if (!evicts(evictors, to)) return for_each(evictors, [](Evictor& e, int) { e.keep_all(); });
    Evictor& first = at(evictors, first_);
    shared_.begin(first.regions().middle());
    for_each(evictors, ask);
    const int forgotten = first.list_shared(shared_, to);
    for_each(evictors, [&](Evictor& e, int) {
      e.chooser_.list_as(first.chooser_);
      e.keep(forgotten);
    });
  }

  /// Refuses policies that would keep other rows by the same scores.
  static void require_alike(const Policy& one, const Policy& first) {
    const auto values = [](Policy policy) {
      struct Values final : OptionVisitor {
        std::vector<double> all;
        bool saves() const override { return true; }
        void whole(const char*, int& value, long long, long long, const char*) override { all.push_back(value); }
        void number(const char*, double& value, bool (*)(double), const char*, const char*) override {
          all.push_back(value);
        }
        void one_of(const char*, int& value, const char* const*, int, const char*) override { all.push_back(value); }
      } v;
      v.all = {static_cast<double>(policy.protect.sink), static_cast<double>(policy.protect.window),
               static_cast<double>(policy.reduction.reduce), policy.reduction.part,
               static_cast<double>(policy.select.code())};
      policy.select.options(v);
      return v.all;
    };
    if (values(one) != values(first))
      fail("policy", one.name, "sink, window, selection and reduction of the model's other layers");
  }

  int layers_ = 0, first_ = -1;  // how many; the first that takes part
  int capacity_ = 0;             // of those
  SharedImportance shared_;      // over all their heads
};

}  // namespace buzz
