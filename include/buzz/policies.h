#pragma once

#include "buzz/policy.h"
#include "buzz/score/key_diversity.h"
#include "buzz/score/mass.h"
#include "buzz/score/no_score.h"
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
/// H2O (arXiv 2306.14048): accumulated attention, the heaviest rows of all.
using HeavyHitter = Policy<Mass, TopK>;
/// StreamingLLM (arXiv 2309.17453): sink and window; with sink 0 a sliding window.
using Streaming = Policy<NoScore, Nothing>;
/// No eviction, up to a capacity.
using Full = Policy<NoScore, Everything>;

using Options = Beehive::Options;

}  // namespace buzz
