#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "buzz/options.h"
#include "buzz/policy.h"

namespace buzz {

/// A score with a selection: a policy of one's own.
inline Policy policy(ScoreSpec score, const Selection& select, const Protect& protect = {},
                     Sharing sharing = Sharing::head, const ReductionOptions& reduction = {}) {
  return {"", std::move(score), select, protect, sharing, reduction};
}
/// The same with a score of one's own: a class derived from Score that can be copied.
template <class S>
Policy policy(std::unique_ptr<S> score, const Selection& select, const Protect& protect = {},
              Sharing sharing = Sharing::head, const ReductionOptions& reduction = {}) {
  return policy(own_score(std::move(score)), select, protect, sharing, reduction);
}

/// What sink and window protect, and a policy's other options.
/// @{
using BeehiveOptions = PolicyOptions<Segments, AttentionSumOptions>;
using StridedOptions = PolicyOptions<Segments, NoScoreOptions>;
using DiverseBeehiveOptions = PolicyOptions<Segments, DiversityOptions>;
/// How much the value counts beside the key.
struct KeyValueWeight {
  float weight = 1;  ///< of the value's length; finite
};
using KeyValueBeehiveOptions = PolicyOptions<Segments, DiversityOptions, KeyValueWeight>;
using HeavyHitterOptions = PolicyOptions<TopK, AttentionSumOptions>;
/// KeyDiff's measure of unlikeness.
struct DirectionOptions : DiversityOptions {
  DirectionOptions() { unlike = Unlike::direction; }
};
using KeyDiffOptions = PolicyOptions<TopKOfAll, DirectionOptions>;
/// The mean over the rows that stand for choice.
struct MiddleDiversityOptions : DiversityOptions {
  MiddleDiversityOptions() { mean_over = MeanOver::middle; }
};
using KeyOutliersOptions = PolicyOptions<TopKOfHistory, MiddleDiversityOptions, FadingOptions>;
using LeverageOptions = PolicyOptions<TopKSeldom, RidgeOptions>;
using LagKvOptions = PolicyOptions<TopKSeldom, LagOptions>;
/// A small power: between the mean of logarithms, which too many heads share in, and the attention itself. And a trail
/// of some words.
struct ForetoldOptions : WeightsOptions {
  ForetoldOptions() { power = 0.2f, trail = 3; }
};
using CalibratedOptions = PolicyOptions<TopKOfText, ForetoldOptions>;
using ExpectedAttentionOptions = PolicyOptions<TopKSeldom, ExpectedOptions>;
using TriAttentionOptions = PolicyOptions<TopKSeldom, TriOptions>;
using CapKvOptions = PolicyOptions<TopKSeldom, CapOptions>;
/// TOVA's query.
struct NewestOptions : AttentionSumOptions {
  NewestOptions() { attention = AttentionKind::newest; }
};
using TovaOptions = PolicyOptions<TopKOfAll, NewestOptions>;
using SnapKvOptions = PolicyOptions<TopKOfPrefix, RecentAttentionOptions>;
using UserScoresBeehiveOptions = PolicyOptions<Segments, UserScoresOptions>;
using StreamingOptions = PolicyOptions<KeepNone, NoScoreOptions>;
using FullOptions = PolicyOptions<KeepAll, NoScoreOptions>;
using RecallOptions = CalibratedOptions;
using FluencyOptions = ExpectedAttentionOptions;
/// @}

/// The named policies, of their options.
/// @{

/// BUZZ (arXiv 2410.23079): summed attention, the heaviest row of each chunk. attention = latest is the authors'
/// `fast`.
inline Policy beehive(const BeehiveOptions& o = {}) { return {"beehive", attention_sum(o), Segments::Options(o), o}; }
/// BUZZ without scores: the first row of each chunk (the authors' `no max`).
inline Policy strided(const StridedOptions& o = {}) { return {"strided", no_score(), Segments::Options(o), o}; }
/// The beehive's even choice, of the keys that are least like the others.
inline Policy diverse_beehive(const DiverseBeehiveOptions& o = {}) {
  return {"diverse_beehive", key_diversity(o), Segments::Options(o), o};
}
/// The same where a row's value counts as much as its key.
inline Policy key_value_beehive(const KeyValueBeehiveOptions& o = {}) {
  return {"key_value_beehive", sum(key_diversity(o), value_norm(), o.weight), Segments::Options(o), o};
}
/// H2O (arXiv 2306.14048): summed attention, the heaviest rows of all.
inline Policy heavy_hitter(const HeavyHitterOptions& o = {}) {
  return {"heavy_hitter", attention_sum(o), TopK::Options(o), o};
}
/// KeyDiff (arXiv 2504.15364): of all rows the keys that are least like the others.
inline Policy key_diff(const KeyDiffOptions& o = {}) { return {"key_diff", key_diversity(o), TopK::Options(o), o}; }
/// A long window, and behind it the keys least like the others there, the older the less, one list for all KV heads. It
/// needs neither probabilities nor queries, so that it runs beside any kernel and in engines whose heads share their
/// cells. The best for recall on the small model of examples/tiny_llama, and not on larger ones.
inline Policy key_outliers(const KeyOutliersOptions& o = {}) {
  return {"key_outliers", faded(key_diversity(o), o), TopK::Options(o), o, Sharing::layer};
}
/// A long window, and behind it the rows of the highest ridge leverage: those whose keys, as they came, or values the
/// other rows make up for least.
inline Policy leverage(const LeverageOptions& o = {}) { return {"leverage", leverage_score(o), TopK::Options(o), o}; }
/// A long window, and behind it the rows that spread most once the rows after them are the measure (LagKV, arXiv
/// 2504.04704).
inline Policy lag_kv(const LagKvOptions& o = {}) { return {"lag_kv", lag_score(o), TopK::Options(o), o}; }
/// A short window, and behind it the rows that a model's calibration says will be looked at, one list for all layers.
/// It needs its weights: CalibratedOptions o; o.weights = load_calibration(path). A ModelCache's layers have each its
/// own, and evict together by ModelCache::evict(); engines that own K and V give a ModelEvictor policy.for_layer(i) of
/// each layer.
inline Policy calibrated(const CalibratedOptions& o = {}) {
  return {"calibrated", calibrated_score(o), TopK::Options(o), o, Sharing::model};
}
/// A long window, and behind it the rows to which the mean query, at the positions to come, gives most attention, times
/// the length of their values (expected attention, arXiv 2510.00636, by its mean alone).
inline Policy expected_attention(const ExpectedAttentionOptions& o = {}) {
  return {"expected_attention", expected_score(o), TopK::Options(o), o};
}
/// A long window, and behind it the rows whose keys suit the mean query, and its pairs' mean lengths, best over the
/// distances to come (TriAttention, arXiv 2604.04921).
inline Policy tri_attention(const TriAttentionOptions& o = {}) {
  return {"tri_attention", tri_score(o), TopK::Options(o), o};
}
/// A long window, and behind it the rows whose values add most to the others', each by how well its key suits the
/// queries that are expected (CapKV).
inline Policy cap_kv(const CapKvOptions& o = {}) { return {"cap_kv", cap_score(o), TopK::Options(o), o}; }
/// TOVA (arXiv 2401.06104, section "Our Proposed Policy: TOVA"): of all rows, the newest among them, those to which the
/// newest query gave most, summed over all heads. A call of several tokens evicts once, by its last query.
inline Policy tova(const TovaOptions& o = {}) {
  return {"tova", attention_sum(o), TopK::Options(o), o, Sharing::layer};
}
/// SnapKV (arXiv 2404.14469, section 4): the last queries' attention, pooled; the heaviest rows before their window.
/// Its prefill form evicts once, after the prompt; decoding, it goes on with the newest queries.
inline Policy snap_kv(const SnapKvOptions& o = {}) { return {"snap_kv", recent_attention(o), TopK::Options(o), o}; }
/// The beehive's even choice by the user's own scores.
inline Policy user_scores(const UserScoresBeehiveOptions& o = {}) {
  return {"user_scores", user_score(), Segments::Options(o), o};
}
/// StreamingLLM (arXiv 2309.17453): sink and window; with sink 0 a sliding window.
inline Policy streaming(const StreamingOptions& o = {}) { return {"streaming", no_score(), KeepNone::Options(o), o}; }
/// No eviction, up to a capacity.
inline Policy full(const FullOptions& o = {}) { return {"full", no_score(), KeepAll::Options(o), o}; }
/// @}

/// The best of them that we know, by what it is for, on the models that people run (examples/evaluate/README.md).
/// @{

/// Answers about what was read, asked for when the rows have been chosen: `calibrated`, which needs its weights.
inline Policy recall(const RecallOptions& o) { return calibrated(o); }
/// Running text: `expected_attention`, which needs none.
inline Policy fluency(const FluencyOptions& o = {}) { return expected_attention(o); }
/// @}

}  // namespace buzz
