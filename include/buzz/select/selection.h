#pragma once

#include <limits>
#include <type_traits>

#include "buzz/option_visitor.h"
#include "buzz/select/by_index.h"
#include "buzz/select/segments.h"
#include "buzz/select/top_k.h"

namespace buzz {

/// Which of the rows between sink and window stay, and when: a beehive, the top k, none or all, with its options.
class Selection {
 public:
  /// One of the four.
  enum class Kind { segments, top_k, none, all };

  /// The beehive's.
  Selection(const Segments::Options& o) : kind_(Kind::segments), segments_(o) {}  // NOLINT: options say what is meant
  /// The top k's.
  Selection(const TopK::Options& o) : kind_(Kind::top_k), top_k_(o) {}  // NOLINT
  /// None's.
  Selection(const KeepNone::Options& o) : kind_(Kind::none), none_(o) {}  // NOLINT
  /// All's.
  Selection(const KeepAll::Options& o) : kind_(Kind::all), all_(o) {}  // NOLINT

 private:
  template <class Select>
  struct Of {
    using type = Select;
  };
  /// f(what Of names, its options).
  template <class Self, class F>
  static auto visit(Self& self, F&& f) {
    switch (self.kind_) {
      case Kind::segments:
        return f(Of<Segments>(), self.segments_);
      case Kind::top_k:
        return f(Of<TopK>(), self.top_k_);
      case Kind::none:
        return f(Of<KeepNone>(), self.none_);
      case Kind::all:
        break;
    }
    return f(Of<KeepAll>(), self.all_);
  }

 public:
  Kind kind() const { return kind_; }  ///< which it is
  /// Its options, where it is of that kind; else null.
  template <class Options>
  const Options* as() const {
    if constexpr (std::is_same<Options, Segments::Options>::value)
      return kind_ == Kind::segments ? &segments_ : nullptr;
    if constexpr (std::is_same<Options, TopK::Options>::value) return kind_ == Kind::top_k ? &top_k_ : nullptr;
    if constexpr (std::is_same<Options, KeepNone::Options>::value) return kind_ == Kind::none ? &none_ : nullptr;
    if constexpr (std::is_same<Options, KeepAll::Options>::value) return kind_ == Kind::all ? &all_ : nullptr;
  }

  /// Its options, in the order of saved files.
  void options(OptionVisitor& v) {
    visit(*this, [&](auto, auto& o) { list(v, o); });
  }
  /// Errors: an option out of its range, or those that do not go together.
  void check() const {
    visit(*this, [](auto select, const auto& o) { decltype(select)::type::check(o); });
  }
  /// In saved files.
  int code() const {
    return visit(*this, [](auto select, const auto&) { return decltype(select)::type::code; });
  }
  /// Most rows between sink and window, a call of max_chunk tokens included.
  long long bound(const Protect& protect, int max_chunk) const {
    return visit(
        *this, [&](auto select, const auto& o) { return decltype(select)::type::bound(with(protect, o), max_chunk); });
  }
  /// Most rows between sink and window that may be pinned.
  int room(const Protect& protect, int max_chunk) const {
    return visit(*this,
                 [&](auto select, const auto& o) { return decltype(select)::type::room(with(protect, o), max_chunk); });
  }
  /// Most evictions that move one row; few_moves + 1: any number above few_moves.
  int most_moves(int window, int max_chunk) const {
    return visit(*this,
                 [&](auto select, const auto& o) { return decltype(select)::type::most_moves(o, window, max_chunk); });
  }

 private:
  template <class O>
  struct Protected : Protect, O {};
  template <class O>
  static Protected<O> with(const Protect& protect, const O& o) {
    Protected<O> p;
    static_cast<Protect&>(p) = protect;
    static_cast<O&>(p) = o;
    return p;
  }

  static constexpr long long most = (std::numeric_limits<int>::max)();
  static void list(OptionVisitor& v, Segments::Options& o) {
    static const char* const rules[] = {"first", "heaviest", "together"};
    static const char* const passes[] = {"until_bounded", "single"};
    v.whole("threshold", o.threshold, 1, most, "rows between sink and window above which an eviction happens");
    v.whole("stride", o.stride, 0, most, "one in so many of the unfiltered rows stays; 0: chunk says");
    if (!v.saves() || o.stride == 0) v.whole("chunk", o.chunk, 0, most, "rows of a chunk; 0: keep * stride");
    v.whole("keep", o.keep, 1, most, "rows that a chunk leaves");
    v.whole("hive_stride", o.hive_stride, 0, most, "one in so many of the hive stays; 0: half the stride");
    v.choice("hive", o.hive, rules, "how the hive is thinned");
    v.choice("passes", o.passes, passes, "when it is");
  }
  static void list(OptionVisitor& v, TopK::Options& o) {
    v.whole("heavy", o.heavy, 0, most, "rows between sink and window that an eviction leaves");
    v.whole("threshold", o.threshold, 0, most, "rows there above which one happens; 0: heavy");
  }
  static void list(OptionVisitor& v, KeepNone::Options& o) {
    v.whole("threshold", o.threshold, 0, most, "rows between sink and window above which an eviction happens");
  }
  static void list(OptionVisitor& v, KeepAll::Options& o) {
    v.whole("capacity", o.capacity, 1, most, "rows that it holds");
  }

  Kind kind_;
  // One of them counts. (A std::variant would take a tenth of the time that the library takes to compile.)
  Segments::Options segments_;
  TopK::Options top_k_;
  KeepNone::Options none_;
  KeepAll::Options all_;
};
/// A selection at work; see Segments.
class AnySelect {
  template <class Options>
  static Options of(const Selection& s) {
    const Options* o = s.as<Options>();
    return o != nullptr ? *o : Options();
  }
  template <class F>
  auto visit(F&& f) const {
    switch (kind_) {
      case Selection::Kind::segments:
        return f(segments_);
      case Selection::Kind::top_k:
        return f(top_k_);
      case Selection::Kind::none:
        return f(none_);
      case Selection::Kind::all:
        break;
    }
    return f(all_);
  }

 public:
  /// The options have been checked.
  explicit AnySelect(const Selection& s)
      : kind_(s.kind()),
        segments_(of<Segments::Options>(s)),
        top_k_(of<TopK::Options>(s)),
        none_(of<KeepNone::Options>(s)),
        all_(of<KeepAll::Options>(s)) {}
  /// Does the budget call for an eviction?
  bool should_evict(const Regions& r) const {
    return visit([&](const auto& s) { return s.should_evict(r); });
  }
  /// Is one more pass needed?
  bool again(int middle) const {
    return visit([&](const auto& s) { return s.again(middle); });
  }
  /// Rows of the hive that a pass keeps without ever reading their scores again; -1: all may be read.
  int forgotten(int hive) const {
    return visit([&](const auto& s) { return s.forgotten(hive); });
  }
  /// One pass: writes the kept indices, ascending, and returns how many.
  int pass(const double* importance, int hive, int unfiltered, int pinned, std::int32_t* out) const {
    return visit([&](const auto& s) { return s.pass(importance, hive, unfiltered, pinned, out); });
  }

 private:
  Selection::Kind kind_;
  Segments segments_;
  TopK top_k_;
  KeepNone none_;
  KeepAll all_;
};

}  // namespace buzz
