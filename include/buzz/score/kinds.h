#pragma once

#include <string>

#include "buzz/error.h"
#include "buzz/finite.h"

namespace buzz {

/// How column sums make a row's score, where a query's column sum is what all heads of a group gave the row.
/// accumulated: the sum of all (BUZZ, section 3.2; H2O). latest: of the last call's queries (the authors' `fast`).
/// mean: accumulated over the number of tokens since the row's own, so that an old row has no head start. newest: the
/// last query's alone (TOVA). largest: the largest that one query gave. decayed: the sum of all, each query's
/// multiplied by `decay` at each later query. Where a part of observe_mass() holds several queries, their sum counts as
/// one query's.
enum class MassKind { accumulated, latest, mean, newest, largest, decayed };

/// Options of the score Mass.
struct MassOptions {
  MassKind mass = MassKind::accumulated;  ///< how column sums make a score
  float decay = 0.95f;                    ///< of MassKind::decayed alone; above 0 and below 1
};
/// Errors: mass, decay.
inline void check(const MassOptions& o) {
  require_enum("mass", o.mass, MassKind::decayed);
  if (!is_finite(o.decay) || o.decay <= 0 || o.decay >= 1)
    fail("decay", std::to_string(o.decay), "above 0 and below 1");
}

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

/// Options of the score Fading.
struct FadingOptions {
  float fade = 0.06f;  ///< worth that a row loses with each `capacity` tokens of its age; finite and >= 0
};
/// Errors: fade.
inline void check(const FadingOptions& o) {
  if (!is_finite(o.fade) || o.fade < 0) fail("fade", std::to_string(o.fade), "finite and >= 0");
}

}  // namespace buzz
