#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "buzz/finite.h"
#include "buzz/option_visitor.h"
#include "buzz/score/any_score.h"
#include "buzz/score/calibration.h"
#include "buzz/score/kinds.h"

namespace buzz {

/// The library's scores, by the numbers of saved files, two that are made of others, and yours.
enum class ScoreKind {
  none,
  attention_sum,
  user,
  key_diversity,
  value_norm,
  recent_attention,
  leverage,
  lag_kv,
  calibrated,
  expected_attention,
  tri_attention,
  cap_kv,
  sum,
  faded,
  own
};

/// How important a row is, as a value: which score, with its options. make_score() makes it one sequence's.
struct ScoreSpec {
  ScoreKind kind = ScoreKind::none;  ///< which
  AttentionSumOptions attention;     ///< of attention_sum
  RecentAttentionOptions recent;     ///< of recent_attention
  DiversityOptions diversity;        ///< of key_diversity
  RidgeOptions leverage;             ///< of leverage
  LagOptions lag;                    ///< of lag_kv
  WeightsOptions calibrated;         ///< of calibrated
  ExpectedOptions expected;          ///< of expected_attention
  TriOptions tri;                    ///< of tri_attention
  CapOptions cap;                    ///< of cap_kv
  FadingOptions fading;              ///< of faded: a row loses some with its age
  float weight = 1;                  ///< of sum: of the second, each in units of its deviation; finite
  std::vector<ScoreSpec> of;         ///< sum: two, of which one at most may be stateful; faded: one
  AnyScore score;                    ///< own

  /// What it has to see.
  Needs needs() const {
    switch (kind) {
      case ScoreKind::none:
        return needs_of(NoScoreOptions());
      case ScoreKind::attention_sum:
        return needs_of(attention);
      case ScoreKind::user:
        return needs_of(UserScoresOptions());
      case ScoreKind::key_diversity:
        return needs_of(diversity);
      case ScoreKind::value_norm:
        return needs_of(ValueNormOptions());
      case ScoreKind::recent_attention:
        return needs_of(recent);
      case ScoreKind::leverage:
        return needs_of(leverage);
      case ScoreKind::lag_kv:
        return needs_of(lag);
      case ScoreKind::calibrated:
        return needs_of(calibrated);
      case ScoreKind::expected_attention:
        return needs_of(expected);
      case ScoreKind::tri_attention:
        return needs_of(tri);
      case ScoreKind::cap_kv:
        return needs_of(cap);
      case ScoreKind::sum:
        return of[0].needs() | of[1].needs();
      case ScoreKind::faded:
        return of[0].needs();
      case ScoreKind::own:
        break;
    }
    return score->needs();
  }
  /// The number that names it in saved files; those of 0.1.0 have the same.
  int code() const {
    if (kind == ScoreKind::sum) {  // of yours, or of many: as one of yours
      const long long code = 10000LL + 100LL * of[0].code() + of[1].code();
      return code < own_code ? static_cast<int>(code) : own_code;
    }
    if (kind == ScoreKind::faded) return 2000000 + of[0].code();
    return kind == ScoreKind::own ? own_code : static_cast<int>(kind);
  }
  /// Its options, in the order of saved files.
  void options(OptionVisitor& v) {
    for (ScoreSpec& one : of) one.options(v);
    if (kind == ScoreKind::attention_sum) list(v, attention);
    if (kind == ScoreKind::recent_attention) list(v, recent);
    if (kind == ScoreKind::key_diversity) list(v, diversity);
    if (kind == ScoreKind::leverage) list(v, leverage);
    if (kind == ScoreKind::lag_kv) v.whole("lag", lag.lag, 1, (std::numeric_limits<int>::max)(), "rows of a block");
    if (kind == ScoreKind::calibrated) list(v, calibrated);
    if (kind == ScoreKind::expected_attention) list(v, expected);
    if (kind == ScoreKind::tri_attention) v.whole("reach", tri.reach, 1, most_horizon, "the farthest position ahead");
    if (kind == ScoreKind::cap_kv) list(v, cap);
    if (kind == ScoreKind::sum)
      v.real(
          "weight", weight, [](double x) { return is_float(x); }, "finite", "of the second score");
    if (kind == ScoreKind::faded)
      v.real(
          "fade", fading.fade, [](double x) { return x >= 0 && is_float(x); }, "finite and >= 0",
          "importance that a row loses with each `capacity` tokens of its age");
  }
  /// Errors: an option out of its range.
  void check() const {
    for (const ScoreSpec& one : of) one.check();
    buzz::check(attention);
    buzz::check(recent);
    buzz::check(diversity);
    buzz::check(leverage);
    buzz::check(lag);
    buzz::check(calibrated);
    buzz::check(expected);
    buzz::check(tri);
    buzz::check(cap);
    buzz::check(fading);
    if (!is_finite(weight)) fail("weight", std::to_string(weight), "finite");
  }

  /// Says whose weights it has, where it has some by layer.
  void set_layer(int layer) {
    calibrated.layer = layer;
    for (ScoreSpec& one : of) one.set_layer(layer);
  }
  /// The first calibration among its parts; null: none.
  const Calibration* calibration() const {
    const Calibration* found = kind == ScoreKind::calibrated ? calibrated.weights.get() : nullptr;
    for (const ScoreSpec& one : of)
      if (found == nullptr) found = one.calibration();
    return found;
  }

  static constexpr int own_code = 1 << 30;  ///< code() of scores of one's own

 private:
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
  static void list(OptionVisitor& v, RidgeOptions& o) {
    static const char* const rows[] = {"keys", "values"};
    v.choice("of", o.of, rows, "the rows: keys before their rotation, or values");
    v.real("ridge", o.ridge, is_ridge, "1e-6 to 1e6", "of the mean square, added to each: how little is noise");
  }
  static void list(OptionVisitor& v, WeightsOptions& o) {
    if (v.saves()) {
      int which = o.weights == nullptr ? 0 : static_cast<int>(o.weights->checksum() & 0x7FFFFFFF);
      v.whole("weights", which, 0, (std::numeric_limits<int>::max)(), "the checksum's lowest bits");
    } else {
      std::string path = o.weights == nullptr ? "" : o.weights->path();
      const std::string before = path;
      v.path("weights", path, "a file that buzz-calibrate made for the model");
      if (path != before) o.weights = load_calibration(path);
    }
    v.whole("layer", o.layer, -1, (std::numeric_limits<int>::max)(), "whose weights; a ModelCache says it itself");
    v.real("power", o.power, is_power, "0 to 10", "of the foretold attention; 0: its logarithm");
    v.real("trail", o.trail, is_trail, "0 to 1000",
           "positions over which importance is left to the rows behind; 0: none");
  }
  static void list(OptionVisitor& v, ExpectedOptions& o) {
    static const char* const factors[] = {"value", "nothing"};
    v.whole("horizon", o.horizon, 1, most_horizon, "positions ahead");
    v.choice("times", o.times, factors, "what the attention is multiplied by: the value's length, or nothing");
  }
  static void list(OptionVisitor& v, CapOptions& o) {
    v.whole("horizon", o.horizon, 1, most_horizon, "positions ahead");
    v.real("sharpness", o.sharpness, is_sharpness, "0 to 100", "of a weight, exp(sharpness * cosine)");
  }
  static bool is_float(double x) {
    return is_finite(x) && x >= -static_cast<double>((std::numeric_limits<float>::max)()) &&
           x <= static_cast<double>((std::numeric_limits<float>::max)());
  }
};

/// The scores, as values. Yours: a class derived from Score that can be copied.
/// @{
inline ScoreSpec score_of(ScoreKind kind) {
  ScoreSpec s;
  s.kind = kind;
  return s;
}
template <class Options>
ScoreSpec score_of(ScoreKind kind, Options ScoreSpec::*options, const Options& o) {
  ScoreSpec s = score_of(kind);
  s.*options = o;
  return s;
}
inline ScoreSpec no_score() { return score_of(ScoreKind::none); }
inline ScoreSpec user_score() { return score_of(ScoreKind::user); }
inline ScoreSpec value_norm() { return score_of(ScoreKind::value_norm); }
inline ScoreSpec attention_sum(const AttentionSumOptions& o = {}) {
  return score_of(ScoreKind::attention_sum, &ScoreSpec::attention, o);
}
inline ScoreSpec recent_attention(const RecentAttentionOptions& o = {}) {
  return score_of(ScoreKind::recent_attention, &ScoreSpec::recent, o);
}
inline ScoreSpec key_diversity(const DiversityOptions& o = {}) {
  return score_of(ScoreKind::key_diversity, &ScoreSpec::diversity, o);
}
inline ScoreSpec leverage_score(const RidgeOptions& o = {}) {
  return score_of(ScoreKind::leverage, &ScoreSpec::leverage, o);
}
inline ScoreSpec lag_score(const LagOptions& o = {}) { return score_of(ScoreKind::lag_kv, &ScoreSpec::lag, o); }
inline ScoreSpec calibrated_score(const WeightsOptions& o) {
  return score_of(ScoreKind::calibrated, &ScoreSpec::calibrated, o);
}
inline ScoreSpec expected_score(const ExpectedOptions& o = {}) {
  return score_of(ScoreKind::expected_attention, &ScoreSpec::expected, o);
}
inline ScoreSpec tri_score(const TriOptions& o = {}) { return score_of(ScoreKind::tri_attention, &ScoreSpec::tri, o); }
inline ScoreSpec cap_score(const CapOptions& o = {}) { return score_of(ScoreKind::cap_kv, &ScoreSpec::cap, o); }
inline ScoreSpec sum(ScoreSpec a, ScoreSpec b, float weight = 1) {
  ScoreSpec s = score_of(ScoreKind::sum, &ScoreSpec::weight, weight);
  s.of.push_back(std::move(a));
  s.of.push_back(std::move(b));
  return s;
}
inline ScoreSpec faded(ScoreSpec score, const FadingOptions& o = {}) {
  ScoreSpec s = score_of(ScoreKind::faded, &ScoreSpec::fading, o);
  s.of.push_back(std::move(score));
  return s;
}
template <class S>
ScoreSpec own_score(std::unique_ptr<S> score) {
  ScoreSpec s = score_of(ScoreKind::own);
  s.score = AnyScore(std::move(score));
  return s;
}
/// @}

}  // namespace buzz
