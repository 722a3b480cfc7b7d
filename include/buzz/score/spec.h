#pragma once

#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "buzz/finite.h"
#include "buzz/option_visitor.h"
#include "buzz/score/any_score.h"
#include "buzz/score/kinds.h"

namespace buzz {

struct ScoreSpec;

/// One score plus `weight` times another, each in units of its deviation. At most one of them may be stateful.
struct SumSpec {
  std::vector<ScoreSpec> of;  ///< two
  float weight = 1;           ///< of the second; finite
};
/// A score of which a row loses some with its age.
struct FadedSpec {
  std::vector<ScoreSpec> of;  ///< one
  FadingOptions fading;       ///< how fast
};

/// How important a row is, as a value: which score, with its options. make_score() makes it one sequence's.
struct ScoreSpec {
  /// One of the library's, or of one's own.
  std::variant<NoScoreOptions, AttentionSumOptions, UserScoresOptions, DiversityOptions, ValueNormOptions,
               RecentAttentionOptions, SumSpec, FadedSpec, AnyScore>
      is;

  /// From any of those.
  template <class Options, class = std::enable_if_t<!std::is_base_of<ScoreSpec, std::decay_t<Options>>::value>>
  ScoreSpec(Options&& o) : is(std::forward<Options>(o)) {}  // NOLINT: it is that score

  /// Deep copies. (Not inlined: gcc 12 takes a variant's other members for uninitialised.)
  /// @{
  BUZZ_NOINLINE ScoreSpec(const ScoreSpec& other) : is(other.is) {}
  BUZZ_NOINLINE ScoreSpec(ScoreSpec&& other) noexcept : is(std::move(other.is)) {}
  BUZZ_NOINLINE ScoreSpec& operator=(const ScoreSpec& other) {
    is = other.is;
    return *this;
  }
  BUZZ_NOINLINE ScoreSpec& operator=(ScoreSpec&& other) noexcept {
    is = std::move(other.is);
    return *this;
  }
  BUZZ_NOINLINE ~ScoreSpec() {}  // NOLINT(modernize-use-equals-default)
  /// @}

  /// Its options, if it is of that kind; else null.
  template <class Options>
  const Options* as() const {
    return std::get_if<Options>(&is);
  }
  /// What it has to see.
  Needs needs() const {
    if (as<AttentionSumOptions>() || as<RecentAttentionOptions>()) return {true, false, false};
    if (as<DiversityOptions>()) return {false, true, false};
    if (as<ValueNormOptions>()) return {false, false, true};
    if (const auto* s = as<SumSpec>()) return s->of[0].needs() | s->of[1].needs();
    if (const auto* f = as<FadedSpec>()) return f->of[0].needs();
    if (const auto* own = as<AnyScore>()) return (*own)->needs();
    return {};
  }
  /// The number that names it in saved files; those of 0.1.0 have the same.
  int code() const {
    if (const auto* s = as<SumSpec>()) return 10000 + 100 * s->of[0].code() + s->of[1].code();
    if (const auto* f = as<FadedSpec>()) return 2000000 + f->of[0].code();
    static constexpr int codes[] = {0, 1, 2, 3, 4, 5};
    return is.index() < 6 ? codes[is.index()] : own_code;
  }
  /// Its options, in the order of saved files.
  void options(OptionVisitor& v) {
    std::visit([&](auto& o) { list(v, o); }, is);
  }
  /// Errors: an option out of its range; a sum of two that are stateful.
  void check() const {
    std::visit([](const auto& o) { check_one(o); }, is);
  }

  static constexpr int own_code = 1 << 30;  ///< code() of scores of one's own

 private:
  static void list(OptionVisitor&, NoScoreOptions&) {}
  static void list(OptionVisitor&, UserScoresOptions&) {}
  static void list(OptionVisitor&, ValueNormOptions&) {}
  static void list(OptionVisitor&, AnyScore&) {}
  static void list(OptionVisitor& v, AttentionSumOptions& o) {
    static const char* const kinds[] = {"accumulated", "latest", "mean", "newest", "largest", "decayed"};
    v.choice("attention", o.attention, kinds, "how the attention that a row received makes its score");
    if (!v.saves() || o.attention == AttentionKind::decayed)
      v.real(
          "decay", o.decay, [](double x) { return x > 0 && x < 1; }, "above 0 and below 1",
          "what is left of the sum at each later query, where attention=decayed");
  }
  static void list(OptionVisitor& v, RecentAttentionOptions& o) {
    static const char* const poolings[] = {"max", "average"};
    v.whole("queries", o.queries, 1, most_queries, "of the observation window");
    v.whole("kernel", o.kernel, 1, (std::numeric_limits<int>::max)(), "rows pooled, odd; 1: none");
    v.choice("pooling", o.pooling, poolings, "what neighbours become");
  }
  static void list(OptionVisitor& v, DiversityOptions& o) {
    static const char* const measures[] = {"cosine", "direction", "distance"};
    static const char* const means[] = {"all", "middle"};
    v.choice("unlike", o.unlike, measures, "the measure of unlikeness");
    v.choice("mean_over", o.mean_over, means, "the rows whose mean it is from");
  }
  static void list(OptionVisitor& v, SumSpec& s) {
    for (ScoreSpec& one : s.of) one.options(v);
    v.real(
        "weight", s.weight, [](double x) { return is_float(x); }, "finite", "of the second score");
  }
  static void list(OptionVisitor& v, FadedSpec& f) {
    f.of[0].options(v);
    v.real(
        "fade", f.fading.fade, [](double x) { return x >= 0 && is_float(x); }, "finite and >= 0",
        "importance that a row loses with each `capacity` tokens of its age");
  }
  static bool is_float(double x) {
    return is_finite(x) && x >= -static_cast<double>((std::numeric_limits<float>::max)()) &&
           x <= static_cast<double>((std::numeric_limits<float>::max)());
  }

  template <class Options>
  static void check_one(const Options& o) {
    buzz::check(o);
  }
  static void check_one(const AnyScore&) {}
  static void check_one(const SumSpec& s) {
    for (const ScoreSpec& one : s.of) one.check();
    if (!is_finite(s.weight)) fail("weight", std::to_string(s.weight), "finite");
  }
  static void check_one(const FadedSpec& f) {
    f.of[0].check();
    buzz::check(f.fading);
  }
};

/// The scores, as values. Yours: a class derived from Score that can be copied.
/// @{
inline ScoreSpec no_score() { return NoScoreOptions(); }
inline ScoreSpec attention_sum(const AttentionSumOptions& o = {}) { return o; }
inline ScoreSpec recent_attention(const RecentAttentionOptions& o = {}) { return o; }
inline ScoreSpec key_diversity(const DiversityOptions& o = {}) { return o; }
inline ScoreSpec value_norm() { return ValueNormOptions(); }
inline ScoreSpec user_score() { return UserScoresOptions(); }
inline ScoreSpec sum(ScoreSpec a, ScoreSpec b, float weight = 1) {
  return SumSpec{{std::move(a), std::move(b)}, weight};
}
inline ScoreSpec faded(ScoreSpec score, const FadingOptions& o = {}) { return FadedSpec{{std::move(score)}, o}; }
template <class S>
ScoreSpec own_score(std::unique_ptr<S> score) {
  return AnyScore(std::move(score));
}
/// @}

}  // namespace buzz
