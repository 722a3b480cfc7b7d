#pragma once

#include "buzz/policy.h"
#include "buzz/score/fading.h"
#include "buzz/score/key_diversity.h"
#include "buzz/score/mass.h"
#include "buzz/score/mixed.h"
#include "buzz/score/no_score.h"
#include "buzz/score/recent_mass.h"
#include "buzz/score/shared.h"
#include "buzz/score/value_norm.h"
#include "buzz/select/by_index.h"
#include "buzz/select/segments.h"
#include "buzz/select/top_k.h"

namespace buzz {

/// BUZZ (arXiv 2410.23079): accumulated attention, the heaviest row of each chunk. Options::mass = latest is the
/// authors' `fast`.
using Beehive = Policy<Mass, Segments>;
/// BUZZ without scores: the first row of each chunk (the authors' `no max`).
using Strided = Policy<NoScore, Segments>;
/// The beehive's even choice, of the keys that are least like the others.
using DiverseBeehive = Policy<KeyDiversity, Segments>;
/// The same where a row's value counts as much as its key.
using KeyValueBeehive = Policy<Mixed<KeyDiversity, ValueNorm>, Segments>;
/// H2O (arXiv 2306.14048): accumulated attention, the heaviest rows of all.
using HeavyHitter = Policy<Mass, TopK>;

/// KeyDiversity whose options are KeyDiff's.
struct DirectionDiversity : KeyDiversity {
  /// KeyDiversity's, with KeyDiff's measure of unlikeness.
  struct Options : KeyDiversity::Options {
    Options() { unlike = Unlike::direction; }
  };
  /// For one sequence.
  using KeyDiversity::KeyDiversity;
};
/// KeyDiff (arXiv 2504.15364): of all rows the keys that are least like the others.
using KeyDiff = Policy<DirectionDiversity, TopKOfAll>;

/// KeyDiversity among the rows that stand for choice.
struct MiddleDiversity : KeyDiversity {
  /// KeyDiversity's, with the mean over the middle.
  struct Options : KeyDiversity::Options {
    Options() { mean_over = MeanOver::middle; }
  };
  /// For one sequence.
  using KeyDiversity::KeyDiversity;
};
/// The best that we know, of all that buzz-evaluate has compared (examples/evaluate/README.md): a long window, and
/// behind it the keys least like the others there, the older the less, one list for all KV heads. It needs no
/// probabilities, so that it runs beside any kernel and in engines whose heads share their cells. Options::for_rows()
/// has its sizes.
using KeyOutliers = Policy<Shared<Fading<MiddleDiversity>>, TopKOfHistory>;

/// Mass whose options are TOVA's.
struct NewestMass : Mass {
  /// Mass's, with TOVA's query.
  struct Options : Mass::Options {
    Options() { mass = MassKind::newest; }
  };
  /// For one sequence.
  using Mass::Mass;
};
/// TOVA (arXiv 2401.06104, section "Our Proposed Policy: TOVA"): of all rows, the newest among them, those to which the
/// newest query gave most, summed over all heads. A call of several tokens evicts once, by its last query.
using Tova = Policy<Shared<NewestMass>, TopKOfAll>;

/// SnapKV (arXiv 2404.14469, section 4): the last queries' attention, pooled; the heaviest rows before their window.
/// Its prefill form evicts once, after the prompt; decoding, it goes on with the newest queries.
using SnapKv = Policy<RecentMass, TopKOfPrefix>;

/// StreamingLLM (arXiv 2309.17453): sink and window; with sink 0 a sliding window.
using Streaming = Policy<NoScore, Nothing>;
/// No eviction, up to a capacity.
using Full = Policy<NoScore, Everything>;

using Options = Beehive::Options;  ///< the default policy's

}  // namespace buzz
