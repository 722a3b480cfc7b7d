#pragma once

#include <limits>
#include <variant>

#include "buzz/option_visitor.h"
#include "buzz/select/by_index.h"
#include "buzz/select/segments.h"
#include "buzz/select/top_k.h"

namespace buzz {

/// The selection that has these options.
template <class Options>
struct SelectOf;
/// @{
/// The beehive's.
template <>
struct SelectOf<Segments::Options> {
  using type = Segments;  ///< the beehive
};
/// The top k's.
template <>
struct SelectOf<TopK::Options> {
  using type = TopK;  ///< the best of all
};
/// None's.
template <>
struct SelectOf<KeepNone::Options> {
  using type = KeepNone;  ///< none
};
/// All's.
template <>
struct SelectOf<KeepAll::Options> {
  using type = KeepAll;  ///< all
};
/// @}

/// Which of the rows between sink and window stay, and when: a beehive, the top k, none or all, with its options.
class Selection {
 public:
  /// The beehive's.
  Selection(const Segments::Options& o) : o_(o) {}  // NOLINT: options say what is meant
  /// The top k's.
  Selection(const TopK::Options& o) : o_(o) {}  // NOLINT
  /// None's.
  Selection(const KeepNone::Options& o) : o_(o) {}  // NOLINT
  /// All's.
  Selection(const KeepAll::Options& o) : o_(o) {}  // NOLINT

  /// Its options, in the order of saved files.
  void options(OptionVisitor& v) {
    std::visit([&](auto& o) { list(v, o); }, o_);
  }
  /// Errors: an option out of its range, or those that do not go together.
  void check() const {
    std::visit([](const auto& o) { Of<decltype(o)>::check(o); }, o_);
  }
  /// In saved files.
  int code() const {
    return std::visit([](const auto& o) { return Of<decltype(o)>::code; }, o_);
  }
  /// Most rows between sink and window, a call of max_chunk tokens included.
  long long bound(const Protect& protect, int max_chunk) const {
    return std::visit([&](const auto& o) { return Of<decltype(o)>::bound(with(protect, o), max_chunk); }, o_);
  }
  /// Most rows between sink and window that may be pinned.
  int room(const Protect& protect, int max_chunk) const {
    return std::visit([&](const auto& o) { return Of<decltype(o)>::room(with(protect, o), max_chunk); }, o_);
  }
  /// Most evictions that move one row; few_moves + 1: any number above few_moves.
  int most_moves(int window, int max_chunk) const {
    return std::visit([&](const auto& o) { return Of<decltype(o)>::most_moves(o, window, max_chunk); }, o_);
  }
  /// Its options, where it is of that kind; else null.
  template <class Options>
  const Options* as() const {
    return std::get_if<Options>(&o_);
  }

 private:
  template <class O>
  using Of = typename SelectOf<std::decay_t<O>>::type;
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

  std::variant<Segments::Options, TopK::Options, KeepNone::Options, KeepAll::Options> o_;
};
/// A selection at work; see Segments.
class AnySelect {
 public:
  /// The options have been checked.
  explicit AnySelect(const Selection& s) : select_(make(s)) {}
  /// Does the budget call for an eviction?
  bool should_evict(const Regions& r) const {
    return std::visit([&](const auto& s) { return s.should_evict(r); }, select_);
  }
  /// Is one more pass needed?
  bool again(int middle) const {
    return std::visit([&](const auto& s) { return s.again(middle); }, select_);
  }
  /// Rows of the hive that a pass keeps without ever reading their scores again; -1: all may be read.
  int forgotten(int hive) const {
    return std::visit([&](const auto& s) { return s.forgotten(hive); }, select_);
  }
  /// One pass: writes the kept indices, ascending, and returns how many.
  int pass(const double* importance, int hive, int unfiltered, int pinned, std::int32_t* out) const {
    return std::visit([&](const auto& s) { return s.pass(importance, hive, unfiltered, pinned, out); }, select_);
  }

 private:
  using Any = std::variant<Segments, TopK, KeepNone, KeepAll>;
  static Any make(const Selection& s) {
    if (const auto* o = s.as<Segments::Options>()) return Segments(*o);
    if (const auto* o = s.as<TopK::Options>()) return TopK(*o);
    if (const auto* o = s.as<KeepNone::Options>()) return KeepNone(*o);
    return KeepAll(*s.as<KeepAll::Options>());
  }
  Any select_;
};

}  // namespace buzz
