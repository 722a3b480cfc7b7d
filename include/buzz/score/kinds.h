#pragma once

#include <memory>
#include <string>

#include "buzz/error.h"
#include "buzz/finite.h"
#include "buzz/score/needs.h"
#include "buzz/sizes.h"

namespace buzz {

/// How column sums make a row's score, where a query's column sum is what all heads of a group gave the row.
/// accumulated: the sum of all (BUZZ, section 3.2; H2O). latest: of the last call's queries (the authors' `fast`).
/// mean: accumulated over the number of tokens since the row's own, so that an old row has no head start. newest: the
/// last query's alone (TOVA). largest: the largest that one query gave. decayed: the sum of all, each query's
/// multiplied by `decay` at each later query. Where a slice of observe_sums() holds several queries, their sum counts
/// as one query's.
enum class AttentionKind { accumulated, latest, mean, newest, largest, decayed };

/// Options of the score AttentionSum.
struct AttentionSumOptions {
  AttentionKind attention = AttentionKind::accumulated;  ///< how column sums make a score
  float decay = 0.95f;                                   ///< of AttentionKind::decayed alone; above 0 and below 1
};
/// Errors: decay.
inline void check(const AttentionSumOptions& o) {
  require_enum("attention", o.attention, AttentionKind::decayed);
  if (!is_finite(o.decay) || o.decay <= 0 || o.decay >= 1)
    fail("decay", std::to_string(o.decay), "above 0 and below 1");
}
constexpr Needs needs_of(const AttentionSumOptions&) { return {/*attention*/ true}; }  ///< what it has to see

/// How the scores of neighbouring rows become one: their largest, or their sum over `kernel`.
enum class Pooling { max, average };

/// Of the observation window; more take more memory than there is.
constexpr int most_queries = 1 << 14;

/// Options of the score RecentAttention.
struct RecentAttentionOptions {
  int queries = 32;                ///< of the observation window; 1 to most_queries
  int kernel = 7;                  ///< rows, odd; 1: no pooling
  Pooling pooling = Pooling::max;  ///< what neighbours become
};
/// Errors: an option out of its range.
inline void check(const RecentAttentionOptions& o) {
  require_size("queries", o.queries, most_queries);
  require_at_least("kernel", o.kernel, 1);
  if (o.kernel % 2 == 0) fail("kernel", o.kernel, "an odd number");
  require_enum("pooling", o.pooling, Pooling::average);
}
constexpr Needs needs_of(const RecentAttentionOptions&) { return {/*attention*/ true}; }  ///< what it has to see

/// Scores without options, and what they have to see.
/// @{
struct NoScoreOptions {};
struct UserScoresOptions {};
struct ValueNormOptions {};
inline void check(const NoScoreOptions&) {}     ///< nothing
inline void check(const UserScoresOptions&) {}  ///< nothing
inline void check(const ValueNormOptions&) {}   ///< nothing
constexpr Needs needs_of(const NoScoreOptions&) { return {}; }
constexpr Needs needs_of(const UserScoresOptions&) { return {}; }
constexpr Needs needs_of(const ValueNormOptions&) { return {/*attention*/ false, /*keys*/ false, /*values*/ true}; }
/// @}

/// How a key is unlike the others. cosine: minus its cosine with the mean key. direction: minus its cosine with the
/// mean of the keys' directions, so that long keys do not count for more (KeyDiff, arXiv 2504.15364). distance: from
/// the mean key, in the keys' own units.
enum class Unlike { cosine, direction, distance };

/// Which rows the mean is over: all of the cache, or those between sink and window.
enum class MeanOver { all, middle };

/// Options of the score KeyDiversity.
struct DiversityOptions {
  Unlike unlike = Unlike::cosine;      ///< the measure
  MeanOver mean_over = MeanOver::all;  ///< what the mean is over
};

/// Errors: unlike, mean_over.
inline void check(const DiversityOptions& o) {
  require_enum("unlike", o.unlike, Unlike::distance);
  require_enum("mean_over", o.mean_over, MeanOver::middle);
}
/// What it has to see.
constexpr Needs needs_of(const DiversityOptions&) { return {/*attention*/ false, /*keys*/ true}; }

/// Of which rows a leverage is: keys as they came, before any rotation, or values as stored.
enum class LeverageOf { keys, values };

/// Options of the score Leverage.
struct RidgeOptions {
  LeverageOf of = LeverageOf::keys;  ///< the rows
  float ridge = 0.01f;               ///< of the mean square of all numbers together; 1e-6 to 1e6
};
/// Is it a ridge with which sums in double are exact enough?
inline bool is_ridge(double x) { return is_finite(x) && x >= 1e-6 * (1 - 1e-6) && x <= 1e6; }
/// Errors: of, ridge.
inline void check(const RidgeOptions& o) {
  require_enum("of", o.of, LeverageOf::values);
  if (!is_ridge(static_cast<double>(o.ridge))) fail("ridge", std::to_string(o.ridge), "1e-6 to 1e6");
}
/// What it has to see.
constexpr Needs needs_of(const RidgeOptions& o) {
  Needs needs;
  (o.of == LeverageOf::keys ? needs.unrotated_keys : needs.values) = true;
  return needs;
}

/// Options of the score LagKv.
struct LagOptions {
  int lag = 128;  ///< rows of a block; >= 1
};
/// Errors: lag.
inline void check(const LagOptions& o) { require_at_least("lag", o.lag, 1); }
/// What it has to see.
constexpr Needs needs_of(const LagOptions&) { return {/*attention*/ false, /*keys*/ true, /*values*/ true}; }

class Calibration;

/// Is it one that the attention of Calibrated may be raised to?
inline bool is_power(double x) { return is_finite(x) && x >= 0 && x <= 10; }

/// Is it a distance that importance may trail over?
inline bool is_trail(double x) { return is_finite(x) && x >= 0 && x <= 1000; }

/// Options of the score Calibrated.
struct WeightsOptions {
  std::shared_ptr<const Calibration> weights;  ///< the model's, of all its layers: see load_calibration()
  int layer = -1;   ///< whose of them; -1: not said, where there is more than one. Policy::for_layer() says it
  float power = 0;  ///< of the attention that they foretell; 0: its logarithm; 0 to 10
  float trail = 0;  ///< positions over which what a row leaves to those behind it falls to 1/e; 0: nothing; 0 to 1000
};
/// Errors: layer, power, trail. Weights are asked for where the score is made.
inline void check(const WeightsOptions& o) {
  require_at_least("layer", o.layer, -1);
  if (!is_power(static_cast<double>(o.power))) fail("power", std::to_string(o.power), "0 to 10");
  if (!is_trail(static_cast<double>(o.trail))) fail("trail", std::to_string(o.trail), "0 to 1000");
}
/// What it has to see.
inline Needs needs_of(const WeightsOptions&) {
  Needs needs;
  needs.values = needs.unrotated_keys = true;
  return needs;
}

/// Positions ahead that a score looks at, and distances: more are past any model's context.
constexpr int most_horizon = 1 << 24;

/// What an expected attention is multiplied by: the value's length, or nothing.
enum class ExpectedTimes { value, nothing };

/// Options of the score ExpectedAttention.
struct ExpectedOptions {
  int horizon = 512;                           ///< positions ahead; 1 to most_horizon
  ExpectedTimes times = ExpectedTimes::value;  ///< what the attention is multiplied by
};
/// Errors: horizon, times.
inline void check(const ExpectedOptions& o) {
  require_range("horizon", o.horizon, 1, most_horizon);
  require_enum("times", o.times, ExpectedTimes::nothing);
}
/// What it has to see.
constexpr Needs needs_of(const ExpectedOptions& o) {
  Needs needs;
  needs.rotated_keys = needs.queries = true;
  needs.values = o.times == ExpectedTimes::value;
  return needs;
}

/// Options of the score TriAttention.
struct TriOptions {
  int reach = 10000;  ///< the farthest position ahead; 1 to most_horizon
};
/// Errors: reach.
inline void check(const TriOptions& o) { require_range("reach", o.reach, 1, most_horizon); }
/// What it has to see.
constexpr Needs needs_of(const TriOptions&) {
  Needs needs;
  needs.rotated_keys = needs.queries = needs.query_lengths = true;
  return needs;
}

/// Options of the score CapKv.
struct CapOptions {
  int horizon = 512;    ///< positions ahead; 1 to most_horizon
  float sharpness = 5;  ///< of a weight, exp(sharpness * cosine); 0 to 100
};
/// Is it a sharpness whose weights are numbers?
inline bool is_sharpness(double x) { return is_finite(x) && x >= 0 && x <= 100; }
/// Errors: horizon, sharpness.
inline void check(const CapOptions& o) {
  require_range("horizon", o.horizon, 1, most_horizon);
  if (!is_sharpness(static_cast<double>(o.sharpness))) fail("sharpness", std::to_string(o.sharpness), "0 to 100");
}
/// What it has to see.
constexpr Needs needs_of(const CapOptions&) {
  Needs needs;
  needs.values = needs.rotated_keys = needs.queries = true;
  return needs;
}

/// Options of the score Faded.
struct FadingOptions {
  float fade = 0.06f;  ///< score that a row loses with each `capacity` tokens of its age; finite and >= 0
};
/// Errors: fade.
inline void check(const FadingOptions& o) {
  if (!is_finite(o.fade) || o.fade < 0) fail("fade", std::to_string(o.fade), "finite and >= 0");
}

}  // namespace buzz
