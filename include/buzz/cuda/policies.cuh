#pragma once

#include "buzz/cuda/rules.cuh"
#include "buzz/options.h"
#include "buzz/score/kinds.h"
#include "buzz/score/no_score.h"
#include "buzz/select/by_index.h"
#include "buzz/select/segments.h"
#include "buzz/select/top_k.h"

namespace buzz {
namespace cuda {

// Scores, as far as the host has to know them; the kernels make them.

/// The attention that a row received: buzz::Mass.
struct Mass {
  using Options = MassOptions;               ///< how attention is added up
  static constexpr bool needs_mass = true;   ///< is made of attention probabilities
  static constexpr bool needs_rows = false;  ///< is made of stored keys
  static constexpr bool shared = false;      ///< is summed over the heads, so that all keep the same rows
  static constexpr bool fades = false;       ///< is less the older the row is
  /// Errors: an option out of its range.
  static void check(const Options& o) { buzz::check(o); }
};

/// How unlike the mean key its key is: buzz::KeyDiversity.
struct Diversity {
  using Options = DiversityOptions;  ///< how keys are compared, and with which
  /// @{
  /// As in Mass.
  static constexpr bool needs_mass = false, needs_rows = true, shared = false, fades = false;
  static void check(const Options& o) { buzz::check(o); }
  /// @}
};

/// The same among the rows that stand for choice, the older the less, summed over the heads:
/// buzz::Shared<buzz::Fading<buzz::MiddleDiversity>>.
struct SharedMiddleDiversity : Diversity {
  /// Diversity's, with the mean over the middle, and how fast it fades.
  struct Options : DiversityOptions, FadingOptions {
    Options() { mean_over = MeanOver::middle; }
  };
  /// @{
  /// As in Mass.
  static constexpr bool shared = true, fades = true;
  static void check(const Options& o) {
    Diversity::check(o);
    buzz::check(static_cast<const FadingOptions&>(o));
  }
  /// @}
};

/// Mean directions in place of mean keys: buzz::DirectionDiversity.
struct DirectionDiversity : Diversity {
  /// Diversity's, with KeyDiff's measure of unlikeness.
  struct Options : DiversityOptions {
    Options() { unlike = Unlike::direction; }
  };
};

/// Every row is worth the same.
struct Unscored : NoScore {
  using Options = NoScore::Options;  ///< none
  /// @{
  /// As in Mass.
  static constexpr bool shared = true, fades = false;
  /// @}
};

/// The rule of a selection's options, which have been checked.
/// @{
inline SegmentsRule rule_of(const Segments::Options& o) { return {Segments::thin(o)}; }
inline TopKRule rule_of(const TopK::Options& o) { return {o.heavy, o.threshold != 0 ? o.threshold : o.heavy}; }
inline NothingRule rule_of(const Nothing::Options& o) { return {o.threshold}; }
inline EverythingRule rule_of(const Everything::Options&) { return {}; }
/// @}

/// score x select, as buzz::Policy: its options have the same fields, and the sizes that they give are the same.
template <class Score_, class Select_>
struct Policy {
  using Score = Score_;                          ///< what a row is worth
  using Select = Select_;                        ///< the host's, for its sizes
  using Options = PolicyOptions<Score, Select>;  ///< sink, window, and what score and selection have
  /// Which rows stay, on the device.
  using Rule = decltype(rule_of(std::declval<const typename Select::Options&>()));
};

/// As buzz's of the same name (policies.h).
/// @{
using Beehive = Policy<Mass, Segments>;
using Strided = Policy<Unscored, Segments>;
using DiverseBeehive = Policy<Diversity, Segments>;
using HeavyHitter = Policy<Mass, TopK>;
using KeyDiff = Policy<DirectionDiversity, TopKOfAll>;
using KeyOutliers = Policy<SharedMiddleDiversity, TopKOfHistory>;
using Streaming = Policy<Unscored, Nothing>;
using Full = Policy<Unscored, Everything>;
/// @}

using Options = Beehive::Options;  ///< the default policy's

}  // namespace cuda
}  // namespace buzz
